// Ctrl-C while a kernel runs without the interpreter's lock.
#pragma once
#include <nanobind/nanobind.h>

namespace lowtide::bindings {

// Asks Python for pending signals now and then; once one raised, `go_on` is false and the kernel returns soon.
class Monitor {
 public:
  bool go_on() {
    if (interrupted_) return false;
    nanobind::gil_scoped_acquire locked;
    interrupted_ = PyErr_CheckSignals() != 0;
    return !interrupted_;
  }
  // With the lock held, after the kernel: raises what the signal raised.
  void raise() const {
    if (interrupted_) throw nanobind::python_error();
  }

 private:
  bool interrupted_ = false;
};

}  // namespace lowtide::bindings
