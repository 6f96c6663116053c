#pragma once
// What allot-bench decode gpu says: figures with all that follows from them, as a table and as
// JSON. The print functions write to stdout, the others are pure; no CUDA.
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "kernels/bench/cuda_plan.h"

namespace allot::bench {

// The machine, and what was measured of it before anything else.
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

struct Figure {
  Shape shape;
  std::string scores;
  std::string method;
  std::optional<uint32_t> budget;
  Timing timing;
  double bytes = 0;        // needed a step
  double draws = 0;        // a head
  double error = 0;        // |out - dense| / |dense|, mean over rows and heads
  double value_error = 0;  // |out - dense| in units of a value row, root of the mean square
  size_t workspace_bytes = 0;
};

// All figures of one shape.
struct ShapeReport {
  Shape shape;
  double dense_bytes = 0;
  double pages_ms = 0;  // of reading keys and values alone, page by page; 0: not measured
  int copies = 1;
  double flush_bytes = 0;                           // of other memory, read before each step
  nlohmann::json peers = nlohmann::json::object();  // Peer::ask()'s answers by label
  std::vector<Figure> figures;
  std::vector<std::string> left_out;  // sentences
};

// What follows from a figure. Not a number where what it is held against was not measured.
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
// Times where the device is known (multiprocessors > 0).
void printFloors(const CudaOptions& options, const CudaDevice& device, Shape shape);

nlohmann::json deviceJson(const CudaDevice& device);
nlohmann::json reportJson(const CudaOptions& options, const CudaDevice& device,
                          const ShapeReport& report);

}  // namespace allot::bench
