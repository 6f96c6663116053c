#include "kernels/bench/cuda_report.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace allot::bench {
namespace {

// Multiply-adds of a multiprocessor and clock on its tensor cores (16-bit floats), as NVIDIA
// publishes them: nominal, to compare with, not to reach.
double tensorRate(int compute_capability) {
  if (compute_capability >= 90) return 2048;
  if (compute_capability == 80) return 1024;
  return 512;
}
// Exponentials of a multiprocessor and clock.
constexpr double kExponentialRate = 16;

constexpr int kFigureWidth = 8;

// "-" for what is not known.
std::string number(double value, int digits) {
  if (!std::isfinite(value)) return "-";
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}

std::string budgetText(const std::optional<uint32_t>& budget) {
  return budget ? std::to_string(*budget) : "-";
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

}  // namespace

Derived derive(const CudaOptions& options, const CudaDevice& device, const ShapeReport& report,
               const Figure& figure) {
  const double milliseconds = figure.timing.median;
  double dense = NAN;
  for (const Figure& other : report.figures) {
    if (other.method == "dense" && other.scores == figure.scores) dense = other.timing.median;
  }
  const auto peer = [&](const char* name) -> double {
    const auto answer = report.peers.find(name);
    return answer == report.peers.end() ? NAN : answer->value("ms", double{NAN});
  };
  Derived derived;
  derived.gbs = figure.bytes / milliseconds / 1e6;
  derived.share = derived.gbs / device.copy_gbs;
  derived.times_dense = dense / milliseconds;
  derived.times_sdpa = peer("torch") / milliseconds;
  derived.times_flashinfer = peer("flashinfer") / milliseconds;
  derived.bound = report.dense_bytes / figure.bytes;
  derived.of_bound = derived.times_dense / derived.bound;
  derived.limited_by = limitedBy(milliseconds, derived.share, piecesOf(options, report.shape),
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
  std::printf("%5s %7s %5s %-*s %-*s %9s %7s %6s %7s %7s %7s %7s %6s %8s  %s\n", "rows", "keys",
              "S", kFigureWidth, "scores", wide, "method", "ms", "GB/s", "share", "xdense", "xSDPA",
              "xFI", "error", "bound", "of bound", "limited by");
  for (const Figure& figure : report.figures) {
    const Derived derived = derive(options, device, report, figure);
    std::printf("%5d %7d %5s %-*s %-*s %9.4f %7.0f %6s %7s %7s %7s %7s %6s %8s  %s\n",
                report.shape.rows, report.shape.keys, budgetText(figure.budget).c_str(),
                kFigureWidth, figure.scores.c_str(), wide, figure.method.c_str(),
                figure.timing.median, derived.gbs, number(derived.share, 2).c_str(),
                number(derived.times_dense, 2).c_str(), number(derived.times_sdpa, 2).c_str(),
                number(derived.times_flashinfer, 2).c_str(), number(figure.error, 4).c_str(),
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
                       {"timesSdpa", orNull(derived.times_sdpa)},
                       {"timesFlashInfer", orNull(derived.times_flashinfer)},
                       {"error", orNull(figure.error)},
                       {"errorOverValue", orNull(figure.value_error)},
                       {"bound", orNull(derived.bound)},
                       {"ofBound", orNull(derived.of_bound)},
                       {"limitedBy", derived.limited_by}});
  }
  return {{"rows", report.shape.rows},
          {"keys", report.shape.keys},
          {"denseBytes", report.dense_bytes},
          {"copies", report.copies},
          {"flushBytes", report.flush_bytes},
          {"pieces", piecesOf(options, report.shape)},
          {"sdpa", report.peers.value("torch", nlohmann::json())},
          {"flashInfer", report.peers.value("flashinfer", nlohmann::json())},
          {"figures", figures},
          {"leftOut", report.left_out}};
}

}  // namespace allot::bench
