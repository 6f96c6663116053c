#pragma once
// The output of allot-bench's GPU part: figures and what follows from them, as tables and as JSON.
// print*() write to stdout; the others are pure. Any thread; no CUDA.
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "kernels/bench/cuda_plan.h"

namespace allot::bench {

// The machine, and its measured bandwidths and launch time.
struct CudaDevice {
  std::string name, driver, build;
  int compute_capability = 0;  // 90 for 9.0
  int multiprocessors = 0;
  int clock_mhz = 0;
  int cuda_driver = 0, cuda_runtime = 0;
  double memory_bytes = 0, l2_bytes = 0;
  double copy_gbs = 0, read_gbs = 0;
  double empty_graph_ms = 0;
};

// The figures of one case.
struct Figure {
  Shape shape;
  std::string scores;
  std::string method;
  std::optional<uint32_t> budget;
  Timing timing;
  double bytes = 0;        // of a step, by its statistics; dense: by its Floor
  double draws = 0;        // a head, on average
  double error = 0;        // |out - dense| / |dense|, mean over rows and heads
  double value_error = 0;  // root mean square of out - dense; values have variance 1
  size_t workspace_bytes = 0;
};

// All figures of one shape.
struct ShapeReport {
  Shape shape;
  double dense_bytes = 0;
  double pages_ms = 0;  // time to read keys and values page by page; 0: not measured
  int copies = 1;
  double flush_bytes = 0;                           // of other memory, read before each step
  nlohmann::json peers = nlohmann::json::object();  // Peer::ask()'s answers by label
  std::vector<Figure> figures;
  std::vector<std::string> left_out;  // sentences
};

// Ratios of a figure; NaN if a part was not measured. share: of the copy bandwidth; times_x: x's
// time / its time; bound: dense bytes / its bytes; of_bound: times_dense / bound.
struct Derived {
  double gbs = 0, share = 0, times_dense = 0;
  std::map<std::string, double> times_peers;  // by label
  std::string fastest;                        // "this", "dense" or a peer's label
  double bound = 0, of_bound = 0;
  const char* limited_by = "";
};
Derived derive(const CudaOptions& options, const CudaDevice& device, const ShapeReport& report,
               const Figure& figure);

void printDevice(const CudaOptions& options, const CudaDevice& device);
void printReport(const CudaOptions& options, const CudaDevice& device, const ShapeReport& report);
// Prints the floors of a shape's cases; also as times, if the device is known (multiprocessors >
// 0).
void printFloors(const CudaOptions& options, const CudaDevice& device, Shape shape);

nlohmann::json deviceJson(const CudaDevice& device);
nlohmann::json reportJson(const CudaOptions& options, const CudaDevice& device,
                          const ShapeReport& report);

}  // namespace allot::bench
