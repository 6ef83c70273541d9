#include "kernels/pack.hpp"

#include "bindings/register.hpp"

namespace lowtide::bindings {
namespace {

using Packer = std::vector<int64_t> (*)(const PackingInput&);

Result<int64_t> run(Packer packer, const Array<int64_t>& first, const Array<int64_t>& last,
                    const Array<int64_t>& sizes, int64_t alignment) {
  std::vector<int64_t> offsets;
  {
    nb::gil_scoped_release released;
    offsets = packer({span_of(first), span_of(last), span_of(sizes), alignment});
  }
  return to_numpy(std::move(offsets));
}

template <Packer packer>
void define(nb::module_& m, const char* name, const char* doc) {
  m.def(
      name,
      [](Array<int64_t> first, Array<int64_t> last, Array<int64_t> sizes, int64_t alignment) {
        return run(packer, first, last, sizes, alignment);
      },
      nb::arg("first"), nb::arg("last"), nb::arg("sizes"), nb::arg("alignment"), doc);
}

}  // namespace

void register_pack(nb::module_& m) {
  define<pack_greedy_by_size>(m, "pack_greedy_by_size", "Offsets: largest first, each in the tightest gap.");
  define<pack_best_fit_by_birth>(m, "pack_best_fit_by_birth", "Offsets: by birth, each in the tightest free block.");
}

}  // namespace lowtide::bindings
