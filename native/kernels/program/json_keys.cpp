#include "kernels/program/json_keys.hpp"

#include <algorithm>
#include <deque>
#include <string>
#include <tuple>
#include <vector>

namespace lowtide {
namespace {

constexpr size_t kBytesPerPoll = 1 << 24;

struct Key {
  std::string_view text;  // without escapes
  KeyPlace place;
};

// The code unit of four hexadecimal digits; other bytes count as zeros.
uint32_t code_unit(std::string_view digits) {
  uint32_t value = 0;
  for (char digit : digits.substr(0, 4)) {
    const bool letter = digit >= 'A';
    value = value * 16 + (letter ? ((digit | 32) - 'a' + 10) & 15 : (digit - '0') & 15);
  }
  return value;
}

void append_utf8(std::string& text, uint32_t code) {
  if (code < 0x80) {
    text += static_cast<char>(code);
  } else if (code < 0x800) {
    text += {static_cast<char>(0xC0 | code >> 6), static_cast<char>(0x80 | (code & 63))};
  } else if (code < 0x10000) {
    text += {static_cast<char>(0xE0 | code >> 12), static_cast<char>(0x80 | (code >> 6 & 63)),
             static_cast<char>(0x80 | (code & 63))};
  } else {
    text += {static_cast<char>(0xF0 | (code >> 18 & 7)), static_cast<char>(0x80 | (code >> 12 & 63)),
             static_cast<char>(0x80 | (code >> 6 & 63)), static_cast<char>(0x80 | (code & 63))};
  }
}

std::string without_escapes(std::string_view raw) {
  static constexpr std::string_view kShort = "bfnrt", kMeant = "\b\f\n\r\t";
  std::string text;
  for (size_t at = 0; at < raw.size(); ++at) {
    if (raw[at] != '\\' || at + 1 == raw.size()) {
      text += raw[at];
      continue;
    }
    const char escape = raw[++at];
    if (escape != 'u') {
      const size_t known = kShort.find(escape);
      text += known == kShort.npos ? escape : kMeant[known];
      continue;
    }
    uint32_t code = code_unit(raw.substr(at + 1));
    at = std::min(at + 4, raw.size() - 1);
    if (code >> 10 == 0x36 && raw.substr(at + 1, 2) == "\\u") {
      const uint32_t low = code_unit(raw.substr(at + 3));
      if (low >> 10 == 0x37) {
        code = 0x10000 + ((code & 0x3FF) << 10) + (low & 0x3FF);
        at = std::min(at + 6, raw.size() - 1);
      }
    }
    append_utf8(text, code);
  }
  return text;
}

}  // namespace

KeyPlace repeated_key(std::string_view json, const std::function<bool()>& go_on) {
  std::vector<Key> keys;       // of all open objects, one object's behind the other's
  std::vector<size_t> firsts;  // where the keys of each open object begin
  std::deque<std::string> resolved;
  KeyPlace last;  // the string read last
  bool escaped = false;
  size_t next_poll = kBytesPerPoll;
  for (size_t at = 0; at < json.size(); ++at) {
    if (at >= next_poll) {
      if (!go_on()) return {};
      next_poll = at + kBytesPerPoll;
    }
    switch (json[at]) {
      case '"': {
        const size_t begin = at + 1;
        escaped = false;
        for (++at; at < json.size() && json[at] != '"'; ++at) {
          if (json[at] == '\\') {
            escaped = true;
            ++at;
          }
        }
        at = std::min(at, json.size());
        last = {static_cast<int64_t>(begin), static_cast<int64_t>(at)};
        break;
      }
      case ':': {  // stands behind keys only
        if (last.begin < 0) break;
        std::string_view text = json.substr(last.begin, last.end - last.begin);
        if (escaped) text = resolved.emplace_back(without_escapes(text));
        keys.push_back({text, last});
        break;
      }
      case '{':
        firsts.push_back(keys.size());
        break;
      case '}': {
        if (firsts.empty()) break;
        const auto own = keys.begin() + firsts.back();
        std::sort(own, keys.end(), [](const Key& one, const Key& other) {
          return std::tie(one.text, one.place.begin) < std::tie(other.text, other.place.begin);
        });
        const auto twin = std::adjacent_find(
            own, keys.end(), [](const Key& one, const Key& other) { return one.text == other.text; });
        if (twin != keys.end()) return (twin + 1)->place;
        keys.erase(own, keys.end());
        firsts.pop_back();
        break;
      }
    }
  }
  return {};
}

}  // namespace lowtide
