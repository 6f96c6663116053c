#include "kernels/bench/cuda_report.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>

namespace allot::bench {
namespace {

// Returns the multiply-adds of a multiprocessor's tensor cores in one clock (16-bit floats), as
// NVIDIA publishes them: nominal, to compare with, not to reach.
double tensorRate(int compute_capability) {
  if (compute_capability >= 90) return 2048;
  if (compute_capability == 80) return 1024;
  return 512;
}
// Exponentials of a multiprocessor in one clock.
constexpr double kExponentialRate = 16;

constexpr int kFigureWidth = 8;

// Returns the number as text, "-" if it is not finite.
std::string number(double value, int digits) {
  if (!std::isfinite(value)) return "-";
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}

std::string budgetText(const std::optional<uint32_t>& budget) {
  return budget ? std::to_string(*budget) : "-";
}

// Returns the labels of the peers' columns: torch and flashinfer always, then the others asked.
std::vector<std::string> columnsOf(const nlohmann::json& peers) {
  std::vector<std::string> labels = {"torch", "flashinfer"};
  for (const auto& [label, answer] : peers.items()) {
    if (label != "torch" && label != "flashinfer") labels.push_back(label);
  }
  return labels;
}

std::string headOf(const std::string& label) {
  return label == "torch" ? "xSDPA" : label == "flashinfer" ? "xFI" : "x" + label;
}

double timesOf(const Derived& derived, const std::string& label) {
  const auto found = derived.times_peers.find(label);
  return found == derived.times_peers.end() ? NAN : found->second;
}

nlohmann::json orNull(double value) {
  return std::isfinite(value) ? nlohmann::json(value) : nlohmann::json();
}

std::string bytesText(double bytes) {
  char text[64];
  const double gigabytes = bytes / 1e9;
  std::snprintf(text, sizeof text, gigabytes < 1 ? "%.1f MB" : "%.2f GB",
                gigabytes < 1 ? bytes / 1e6 : gigabytes);
  return text;
}

// Returns the times of steps by scores and method as spec.policy.stepTimes of an experiment has
// them: "dense 711, 8 132, 128 144", microseconds.
nlohmann::json stepTimes(const std::vector<Figure>& figures) {
  const auto timeText = [](const Figure& figure) {
    char text[32];
    std::snprintf(text, sizeof text, " %.4g", 1000 * figure.timing.median);
    return std::string(text);
  };
  nlohmann::json times = nlohmann::json::object();
  for (const Figure& dense : figures) {
    if (dense.method != "dense") continue;
    std::map<std::string, std::map<uint32_t, std::string>> methods;
    for (const Figure& figure : figures) {
      if (figure.scores == dense.scores && figure.budget.value_or(0) > 0) {
        methods[figure.method][*figure.budget] = timeText(figure);
      }
    }
    for (const auto& [method, of] : methods) {
      std::string text = "dense" + timeText(dense);
      for (const auto& [budget, time] : of) text += ", " + std::to_string(budget) + time;
      times[dense.scores][method] = text;
    }
  }
  return times;
}

}  // namespace

Derived derive(const CudaOptions& options, const CudaDevice& device, const ShapeReport& report,
               const Figure& figure) {
  const double milliseconds = figure.timing.median;
  double dense = NAN;
  for (const Figure& other : report.figures) {
    if (other.method == "dense" && other.scores == figure.scores) dense = other.timing.median;
  }
  Derived derived;
  derived.gbs = figure.bytes / milliseconds / 1e6;
  derived.share = derived.gbs / device.copy_gbs;
  derived.times_dense = dense / milliseconds;
  derived.fastest = figure.method == "dense" || !(dense < milliseconds) ? "this" : "dense";
  double least = std::fmin(dense, milliseconds);
  for (const auto& [label, answer] : report.peers.items()) {
    const double took = answer.value("ms", double{NAN});
    derived.times_peers[label] = took / milliseconds;
    if (took < least) {
      least = took;
      derived.fastest = label;
    }
  }
  derived.bound = report.dense_bytes / figure.bytes;
  derived.of_bound = derived.times_dense / derived.bound;
  derived.limited_by = limitedBy(milliseconds, derived.share, splitsOf(options, report.shape),
                                 device.multiprocessors);
  return derived;
}

void printDevice(const CudaOptions& options, const CudaDevice& device) {
  std::printf("%s: %d multiprocessors at up to %d MHz, %.0f GiB, L2 %.0f MiB; %s; %s\n",
              device.name.c_str(), device.multiprocessors, device.clock_mhz,
              device.memory_bytes / (1 << 30), device.l2_bytes / (1 << 20), device.driver.c_str(),
              device.build.c_str());
  std::printf("copy %.0f GB/s (read and written), reads alone %.0f GB/s, an empty graph %.1f us\n",
              device.copy_gbs, device.read_gbs, 1e3 * device.empty_graph_ms);
  std::printf(
      "%d heads over %d KV heads of %d, %s, pages of %d in random order, cold L2, budgets by %s\n",
      options.heads, options.kv_heads, options.head_dim, options.element.c_str(), options.page_size,
      options.budgets_by == "half" ? "head, every second KV head silent"
                                   : options.budgets_by.c_str());
  std::fflush(stdout);
}

void printReport(const CudaOptions& options, const CudaDevice& device, const ShapeReport& report) {
  std::printf("\n%d %s of %d keys, %s", report.shape.rows, report.shape.rows == 1 ? "row" : "rows",
              report.shape.keys, bytesText(report.dense_bytes).c_str());
  if (report.pages_ms > 0) std::printf("; reading their pages alone %.4f ms", report.pages_ms);
  for (const auto& [name, answer] : report.peers.items()) {
    if (answer.contains("ms")) {
      std::printf("; %s %.4f ms (%s%s)", name.c_str(), answer["ms"].get<double>(),
                  answer.value("way", "").c_str(),
                  answer.value("graph", false) ? "" : ", without a graph");
    } else {
      std::printf("; %s not measured: %s", name.c_str(), answer.value("error", "").c_str());
    }
  }
  std::printf("\n");
  size_t width = 6;
  for (const Figure& figure : report.figures) width = std::max(width, figure.method.size());
  const int wide = static_cast<int>(width);
  const std::vector<std::string> columns = columnsOf(report.peers);
  std::printf("%5s %7s %5s %-*s %-*s %9s %7s %6s %7s", "rows", "keys", "S", kFigureWidth, "scores",
              wide, "method", "ms", "GB/s", "share", "xdense");
  for (const std::string& label : columns) std::printf(" %7s", headOf(label).c_str());
  std::printf(" %10s %7s %6s %8s  %s\n", "fastest", "error", "bound", "of bound", "limited by");
  for (const Figure& figure : report.figures) {
    const Derived derived = derive(options, device, report, figure);
    std::printf("%5d %7d %5s %-*s %-*s %9.4f %7.0f %6s %7s", report.shape.rows, report.shape.keys,
                budgetText(figure.budget).c_str(), kFigureWidth, figure.scores.c_str(), wide,
                figure.method.c_str(), figure.timing.median, derived.gbs,
                number(derived.share, 2).c_str(), number(derived.times_dense, 2).c_str());
    for (const std::string& label : columns) {
      std::printf(" %*s", static_cast<int>(std::max<size_t>(7, headOf(label).size())),
                  number(timesOf(derived, label), 2).c_str());
    }
    std::printf(" %10s %7s %6s %8s  %s\n", derived.fastest.c_str(), number(figure.error, 4).c_str(),
                number(derived.bound, 2).c_str(), number(derived.of_bound, 2).c_str(),
                derived.limited_by);
  }
  for (const std::string& sentence : report.left_out)
    std::printf("left out: %s\n", sentence.c_str());
  std::fflush(stdout);
}

void printFloors(const CudaOptions& options, const CudaDevice& device, Shape shape) {
  const bool known = device.multiprocessors > 0;
  const double clocks = 1e3 * device.clock_mhz * device.multiprocessors;  // a millisecond, in all
  std::printf("\n%d %s of %d keys; drawn rows as if no two draws met%s\n%-24s %5s %10s %13s %9s",
              shape.rows, shape.rows == 1 ? "row" : "rows", shape.keys,
              known ? "; us at the copy bandwidth and at nominal rates" : "", "method", "S", "MB",
              "G mult.-adds", "M exps");
  std::printf(known ? " %9s %9s %9s\n" : "\n", "us bytes", "us m.-a.", "us exps");
  for (const Case& one : casesOf(options, shape.keys)) {
    const auto floor = floorOf(options, shape, one);
    std::printf("%-24s %5s", one.text.c_str(), budgetText(one.budget).c_str());
    if (!floor) {
      std::printf(" not known from its sizes\n");
      continue;
    }
    std::printf(" %10.2f %13.3f %9.3f", floor->bytes / 1e6, floor->multiply_adds / 1e9,
                floor->exponentials / 1e6);
    if (known) {
      std::printf(" %9.2f %9.2f %9.2f", floor->bytes / device.copy_gbs / 1e3,
                  1e3 * floor->multiply_adds / clocks / tensorRate(device.compute_capability),
                  1e3 * floor->exponentials / clocks / kExponentialRate);
    }
    std::printf("\n");
  }
}

nlohmann::json deviceJson(const CudaDevice& device) {
  return {{"name", device.name},
          {"driver", device.driver},
          {"build", device.build},
          {"computeCapability", device.compute_capability},
          {"multiprocessors", device.multiprocessors},
          {"clockMHz", device.clock_mhz},
          {"cudaDriver", device.cuda_driver},
          {"cudaRuntime", device.cuda_runtime},
          {"memoryBytes", device.memory_bytes},
          {"l2Bytes", device.l2_bytes},
          {"copyGigabytesPerSecond", device.copy_gbs},
          {"readGigabytesPerSecond", device.read_gbs},
          {"emptyGraphMilliseconds", device.empty_graph_ms}};
}

nlohmann::json reportJson(const CudaOptions& options, const CudaDevice& device,
                          const ShapeReport& report) {
  nlohmann::json figures = nlohmann::json::array();
  for (const Figure& figure : report.figures) {
    const Derived derived = derive(options, device, report, figure);
    nlohmann::json times = nlohmann::json::object();
    for (const auto& [label, ratio] : derived.times_peers) times[label] = orNull(ratio);
    figures.push_back({{"scores", figure.scores},
                       {"method", figure.method},
                       {"budget", figure.budget ? nlohmann::json(*figure.budget) : nullptr},
                       {"milliseconds", figure.timing.median},
                       {"milliseconds10", figure.timing.p10},
                       {"milliseconds90", figure.timing.p90},
                       {"samples", figure.timing.samples},
                       {"bytes", figure.bytes},
                       {"drawsPerHead", figure.draws},
                       {"workspaceBytes", figure.workspace_bytes},
                       {"gigabytesPerSecond", derived.gbs},
                       {"shareOfCopyBandwidth", derived.share},
                       {"timesDense", orNull(derived.times_dense)},
                       {"timesSdpa", orNull(timesOf(derived, "torch"))},
                       {"timesFlashInfer", orNull(timesOf(derived, "flashinfer"))},
                       {"timesPeers", times},
                       {"fastest", derived.fastest},
                       {"error", orNull(figure.error)},
                       {"errorOverValue", orNull(figure.value_error)},
                       {"bound", orNull(derived.bound)},
                       {"ofBound", orNull(derived.of_bound)},
                       {"limitedBy", derived.limited_by}});
  }
  return {
      {"rows", report.shape.rows},
      {"keys", report.shape.keys},
      {"denseBytes", report.dense_bytes},
      {"copies", report.copies},
      {"flushBytes", report.flush_bytes},
      {"readPagesMilliseconds", report.pages_ms > 0 ? nlohmann::json(report.pages_ms) : nullptr},
      {"splits", splitsOf(options, report.shape)},
      {"sdpa", report.peers.value("torch", nlohmann::json())},
      {"flashInfer", report.peers.value("flashinfer", nlohmann::json())},
      {"peers", report.peers},
      {"figures", figures},
      {"stepTimes", stepTimes(report.figures)},
      {"leftOut", report.left_out}};
}

}  // namespace allot::bench
