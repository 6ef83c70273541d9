#include "kernels/program/json_keys.hpp"

#include <nanobind/stl/pair.h>

#include "bindings/monitor.hpp"
#include "bindings/register.hpp"

namespace lowtide::bindings {

void register_json_keys(nb::module_& m) {
  m.def(
      "repeated_key",
      [](const Array<uint8_t>& json) {
        KeyPlace place;
        Monitor monitor;
        {
          nb::gil_scoped_release released;
          place = repeated_key({reinterpret_cast<const char*>(json.data()), json.shape(0)},
                               [&] { return monitor.go_on(); });
        }
        monitor.raise();
        return std::pair(place.begin, place.end);
      },
      nb::arg("json"), "Where a key of a valid JSON document equals an earlier one of its object; (-1, -1): nowhere.");
}

}  // namespace lowtide::bindings
