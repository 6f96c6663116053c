#include "core/telemetry/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <cstdio>
#include <ctime>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>

namespace allot {
namespace {

// A peer's words must not fill a disk.
constexpr size_t kLongestMessage = 16 * 1024;

// The content of every line beside its message. One for the process.
struct Context {
  std::mutex mutex;
  LogFormat format = LogFormat::kText;
  std::string run_id;
  std::string experiment;
};
Context& context() {
  static Context context;
  return context;
}

// Returns "2026-01-31T12:00:00.123Z".
std::string timeText(spdlog::log_clock::time_point time) {
  const auto since = std::chrono::floor<std::chrono::milliseconds>(time.time_since_epoch()).count();
  const auto seconds = static_cast<std::time_t>(since / 1000);
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  char text[40];
  const size_t size = std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &utc);
  std::snprintf(text + size, sizeof text - size, ".%03dZ", static_cast<int>(since % 1000));
  return text;
}

std::string_view view(spdlog::string_view_t text) { return {text.data(), text.size()}; }

class LineFormatter final : public spdlog::formatter {
 public:
  void format(const spdlog::details::log_msg& msg, spdlog::memory_buf_t& line) override {
    Context& now = context();
    const std::lock_guard lock(now.mutex);
    const std::string_view message = view(msg.payload).substr(0, kLongestMessage);
    const std::string_view level = view(spdlog::level::to_string_view(msg.level));
    const auto append = [&line](std::string_view text) {
      line.append(text.data(), text.data() + text.size());
    };
    if (now.format == LogFormat::kJson) {
      const nlohmann::ordered_json fields = {{"time", timeText(msg.time)},
                                             {"level", level},
                                             {"run_id", now.run_id},
                                             {"experiment", now.experiment},
                                             {"message", message}};
      append(fields.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
      return append("\n");
    }
    append(timeText(msg.time) + " ");
    msg.color_range_start = line.size();
    append(level);
    msg.color_range_end = line.size();
    if (!now.experiment.empty()) {
      append(" [" + oneLine(now.experiment) + (now.run_id.empty() ? "" : " " + now.run_id) + "]");
    }
    append(" " + oneLine(message) + "\n");
  }
  std::unique_ptr<spdlog::formatter> clone() const override {
    return std::make_unique<LineFormatter>();
  }
};

}  // namespace

void setUpLog(LogFormat format) {
  context().format = format;
  auto logger = std::make_shared<spdlog::logger>(
      "allot", std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
  logger->set_formatter(std::make_unique<LineFormatter>());
  spdlog::set_default_logger(std::move(logger));
}

void setLogRun(const std::string& run_id, const std::string& experiment) {
  const std::lock_guard lock(context().mutex);
  context().run_id = run_id;
  context().experiment = experiment;
}

void logLastWords(const std::string& program, std::string_view sentence) {
  if (context().format == LogFormat::kJson) {
    spdlog::critical("{}", sentence);
  } else {
    std::fprintf(stderr, "%s: %s\n", program.c_str(), oneLine(sentence).c_str());
  }
}

std::string oneLine(std::string_view text) {
  std::string out;
  const auto write = [&out](unsigned char byte) {
    char hex[5];
    std::snprintf(hex, sizeof hex, "\\x%02x", byte);
    out += hex;
  };
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const auto next = static_cast<unsigned char>(i + 1 < text.size() ? text[i + 1] : 0);
    if (byte == '\n') {
      out += "\\n";
    } else if (byte < 0x20 || byte == 0x7f) {
      write(byte);
    } else if (byte == 0xc2 && next >= 0x80 && next < 0xa0) {  // U+0080..U+009F, controls too
      write(next);
      ++i;
    } else {
      out += text[i];
    }
  }
  return out;
}

}  // namespace allot
