#include "cli/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "core/utf8.h"

namespace allot {
namespace {

// Returns true for most of East Asia's characters and most pictures: they take two columns.
bool isWide(std::string_view character) {
  if (character.size() < 3) return false;
  const uint32_t code = utf8Code(character);
  return (code >= 0x1100 && code <= 0x115f) || (code >= 0x2e80 && code <= 0xa4cf) ||
         (code >= 0xac00 && code <= 0xd7a3) || (code >= 0xf900 && code <= 0xfaff) ||
         (code >= 0xfe30 && code <= 0xfe6f) || (code >= 0xff00 && code <= 0xff60) ||
         (code >= 0xffe0 && code <= 0xffe6) || (code >= 0x1f300 && code <= 0x1faff) ||
         (code >= 0x20000 && code <= 0x3fffd);
}

// Returns the number of characters, which is that of columns if none is wide.
size_t columns(std::string_view text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

using nlohmann::json;

void emit(const json& value, YAML::Emitter* out) {
  if (value.is_object() && !value.empty()) {
    *out << YAML::BeginMap;
    for (const auto& [key, member] : value.items()) {
      *out << YAML::Key << key << YAML::Value;
      emit(member, out);
    }
    *out << YAML::EndMap;
  } else if (value.is_array() && !value.empty()) {
    *out << YAML::BeginSeq;
    for (const json& element : value) emit(element, out);
    *out << YAML::EndSeq;
  } else if (value.is_object()) {
    *out << YAML::Flow << YAML::BeginMap << YAML::EndMap;
  } else if (value.is_array()) {
    *out << YAML::Flow << YAML::BeginSeq << YAML::EndSeq;
  } else if (value.is_string()) {
    // Strings are always quoted: without quotes true, 12 and ~ are not strings in YAML.
    *out << YAML::DoubleQuoted << value.get_ref<const std::string&>();
  } else if (value.is_null()) {
    *out << YAML::Null;
  } else {
    *out << value.dump();
  }
}

std::string yamlText(const json& document) {
  YAML::Emitter out;
  out.SetOutputCharset(YAML::EscapeNonAscii);
  emit(document, &out);
  return std::string(out.c_str()) + "\n";
}

}  // namespace

std::vector<std::string> legibleLines(std::string_view text, size_t width) {
  std::vector<std::string> lines(1);
  size_t used = 0;           // columns of the last line
  size_t blank = 0;          // bytes of the last line up to and with its last blank
  size_t used_at_blank = 0;  // columns of these bytes
  const auto begin = [&](const std::string& line, size_t columns) {
    lines.push_back(line);
    used = columns;
    blank = used_at_blank = 0;
  };
  for (size_t i = 0; i < text.size();) {
    if (text[i] == '\n') {
      begin("", 0);
      ++i;
      continue;
    }
    const size_t length = std::max<size_t>(printableLength(text, i), 1);
    const std::string shown = printableLength(text, i) > 0
                                  ? std::string(text.substr(i, length))
                                  : formatted("<%02x>", static_cast<unsigned char>(text[i]));
    const size_t wide = printableLength(text, i) > 0 ? (isWide(shown) ? 2 : 1) : shown.size();
    while (used + wide > width && used > 0) {
      const std::string rest = blank > 0 ? lines.back().substr(blank) : "";
      if (blank > 0) lines.back().resize(blank);
      begin(rest, blank > 0 ? used - used_at_blank : 0);
    }
    lines.back() += shown;
    used += wide;
    if (shown == " ") {
      blank = lines.back().size();
      used_at_blank = used;
    }
    i += length;
  }
  return lines;
}

std::string shellWord(const std::string& text) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./:@%+=,-";
  if (!text.empty() && text.find_first_not_of(kPlain) == std::string::npos) return text;
  std::string word = "'";
  for (const char c : text) {
    if (c == '\'') {
      word += "'\\''";
    } else {
      word += c;
    }
  }
  return word + "'";
}

std::string TextTable::text(bool bold_header) const {
  std::vector<size_t> widths(rows_[0].size(), 0);
  for (const auto& row : rows_) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], columns(row[i]));
  }
  std::string text;
  for (const auto& row : rows_) {
    std::string line = "  ";
    for (size_t i = 0; i < row.size(); ++i) {
      line += row[i] + std::string(widths[i] - columns(row[i]) + 2, ' ');
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += toned(line, &row == rows_.data() ? Tone::kBold : Tone::kPlain, bold_header) + "\n";
  }
  return text;
}

size_t terminalWidth(int descriptor) {
  winsize size{};
  if (ioctl(descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  const char* said = std::getenv("COLUMNS");
  const long columns = said != nullptr ? std::strtol(said, nullptr, 10) : 0;
  return columns >= 20 && columns <= 1000 ? static_cast<size_t>(columns) : 80;
}

std::string wrapped(const std::string& text, size_t width, size_t indent) {
  std::string lines;
  size_t used = 0;  // columns of the last line
  for (size_t i = text.find_first_not_of(' '); i < text.size();) {
    const size_t end = std::min(text.find(' ', i), text.size());
    const std::string word = text.substr(i, end - i);
    if (used > 0 && used + 1 + columns(word) > width) {
      lines += "\n";
      used = 0;
    }
    lines += used == 0 ? std::string(indent, ' ') : " ";
    lines += word;
    used += (used == 0 ? indent : 1) + columns(word);
    i = text.find_first_not_of(' ', end);
  }
  return lines + "\n";
}

bool usesColour() {
  const char* refused = std::getenv("NO_COLOR");
  return isatty(STDOUT_FILENO) == 1 && (refused == nullptr || *refused == '\0');
}

std::string toned(const std::string& text, Tone tone, bool colour) {
  constexpr const char* kCodes[] = {"", "1", "32", "33", "31"};
  if (!colour || tone == Tone::kPlain) return text;
  return std::string("\033[") + kCodes[static_cast<int>(tone)] + "m" + text + "\033[0m";
}

std::string formatted(const char* format, ...) {
  va_list arguments, again;
  va_start(arguments, format);
  va_copy(again, arguments);
  const int size = std::vsnprintf(nullptr, 0, format, arguments);
  std::string text(static_cast<size_t>(std::max(size, 0)), '\0');
  std::vsnprintf(text.data(), text.size() + 1, format, again);
  va_end(again);
  va_end(arguments);
  return text;
}

void LongTask::show(uint64_t done, uint64_t all) {
  const bool terminal = isatty(STDERR_FILENO) == 1;
  const auto now = Clock::now();
  const auto pause = terminal ? Clock::duration(std::chrono::milliseconds(250))
                              : Clock::duration(std::chrono::seconds(10));
  if (now - began_ < std::chrono::seconds(2) || now - shown_ < pause) return;
  shown_ = now;
  std::string line = what_ + " " + std::to_string(done) + " of " + std::to_string(all);
  const double seconds = std::chrono::duration<double>(now - began_).count();
  if (done > 0 && all > done) {
    const double left = seconds / static_cast<double>(done) * static_cast<double>(all - done);
    line += "  " + duration(left) + " left";
  }
  std::fprintf(stderr, terminal ? "\r\033[K%s" : "%s\n", line.c_str());
  std::fflush(stderr);
  line_open_ = terminal;
}

LongTask::~LongTask() {
  if (line_open_) std::fprintf(stderr, "\r\033[K");
}

json document(const std::string& kind, json fields) {
  fields["apiVersion"] = kCliApiVersion;
  fields["kind"] = kind;
  return fields;
}

std::string documentText(const json& document, OutputFormat format) {
  if (format == OutputFormat::kYaml) return yamlText(document);
  return document.dump(2, ' ', true, json::error_handler_t::replace) + "\n";
}

void printDocument(const json& document, OutputFormat format) {
  std::printf("%s", documentText(document, format).c_str());
}

void printAs(OutputFormat format, const std::string& kind, json fields, const std::string& text) {
  if (format != OutputFormat::kTable)
    return printDocument(document(kind, std::move(fields)), format);
  std::printf("%s", text.c_str());
}

}  // namespace allot
