// Keys that stand twice in one object of a JSON document: readers keep one of them and say nothing.
#pragma once
#include <cstdint>
#include <functional>
#include <string_view>

namespace lowtide {

struct KeyPlace {
  int64_t begin = -1;  // of the key's first byte behind its quote; -1: no key stands twice
  int64_t end = -1;    // of its closing quote
};

// The first key, in the order in which objects end, that equals an earlier one of its object, escapes resolved.
// The document must be valid JSON; of anything else the answer may be wrong, but nothing is read outside it.
// `go_on` is asked now and then; once it says no, none is found. O(bytes + k log k) for k keys of the largest object.
KeyPlace repeated_key(std::string_view json, const std::function<bool()>& go_on);

}  // namespace lowtide
