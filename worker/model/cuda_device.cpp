#include "worker/model/cuda_device.h"

#include <cuda_runtime_api.h>

#include <sys/mman.h>

#include <cstring>
#include <thread>

#include "worker/model/compute_device.h"
#include "worker/model/cuda_ops.h"
#include "worker/model/decoder_backend.h"

namespace allot {

std::optional<std::string> cudaUnavailable() { return kernels::cuda::unavailable(); }

unsigned cudaDevices() {
  int count = 0;
  if (cudaUnavailable() || cudaGetDeviceCount(&count) != cudaSuccess) return 0;
  return static_cast<unsigned>(count);
}

size_t freeCudaMemory() {
  size_t free = 0, total = 0;
  if (cudaUnavailable() || cudaMemGetInfo(&free, &total) != cudaSuccess) return 0;
  return free;
}

std::string cudaDeviceName() {
  int device = 0;
  cudaDeviceProp properties{};
  if (cudaGetDevice(&device) != cudaSuccess ||
      cudaGetDeviceProperties(&properties, device) != cudaSuccess) {
    return "NVIDIA GPU";
  }
  return properties.name;
}

namespace {

// Allocates pinned memory of the host. Pinning large pages that threads have touched is five times
// as fast as cudaHostAlloc: 0.1 s a GiB on an H200's host.
Result<std::shared_ptr<uint8_t>> pinned(size_t bytes) {
  constexpr size_t kLargePage = size_t{2} << 20;
  constexpr size_t kThreads = 4;
  const size_t room = bytes + kLargePage;
  void* const memory =
      mmap(nullptr, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    return fail(ErrorCode::kIo, "the host has no " + std::to_string(bytes >> 20) + " MiB left");
  }
  const auto address = reinterpret_cast<uintptr_t>(memory);
  auto* const start =
      static_cast<uint8_t*>(memory) + ((kLargePage - address % kLargePage) % kLargePage);
  madvise(start, bytes, MADV_HUGEPAGE);
  {
    std::vector<std::jthread> threads;
    for (size_t i = 0; i < kThreads; ++i) {
      threads.emplace_back([=] {
        for (size_t at = bytes / kThreads * i; at < bytes / kThreads * (i + 1); at += 4096) {
          start[at] = 0;
        }
      });
    }
  }
  const cudaError_t error = cudaHostRegister(start, bytes, cudaHostRegisterPortable);
  if (error != cudaSuccess) {
    cudaGetLastError();  // forgets it
    munmap(memory, room);
    return fail(ErrorCode::kIo, "cannot pin " + std::to_string(bytes >> 20) +
                                    " MiB of the host's memory (" + cudaGetErrorString(error) +
                                    ")");
  }
  return std::shared_ptr<uint8_t>(start, [memory, room](uint8_t* from) {
    cudaHostUnregister(from);
    munmap(memory, room);
  });
}

// Copies whole pages of the pool by a kernel: one launch for thousands of pieces.
class PageMover {
 public:
  explicit PageMover(kernels::cuda::Stream stream) : stream_(stream) {
    cudaEventCreateWithFlags(&read_, cudaEventDisableTiming);
  }
  ~PageMover() { cudaEventDestroy(read_); }
  PageMover(const PageMover&) = delete;
  PageMover& operator=(const PageMover&) = delete;

  // Copies between the pool and host memory. Waits for the copy.
  Status move(const std::vector<PagePart>& parts, const std::vector<int32_t>& pages,
              const std::vector<uint8_t*>& host, bool to_host) {
    if (pages.empty()) return {};
    ALLOT_ASSIGN(const Told told, tell(parts, host, pages));
    cuda_ops::movePages(told.parts, static_cast<int>(parts.size()), told.second,
                        static_cast<uint8_t* const*>(told.first), static_cast<int>(pages.size()),
                        to_host, stream_);
    cudaError_t error = cudaGetLastError();
    if (error == cudaSuccess) error = cudaStreamSynchronize(cudaStream());
    if (error == cudaSuccess) return {};
    return fail(ErrorCode::kIo, std::string("prompts cannot be copied between GPU and host (") +
                                    cudaGetErrorString(error) + ")");
  }

  // Copies within the pool. Waits for nothing; returns a sentence if it could not be started.
  std::optional<std::string> copy(const std::vector<PagePart>& parts,
                                  const std::vector<int32_t>& from,
                                  const std::vector<int32_t>& to) {
    if (from.empty()) return {};
    const auto told = tell(parts, from, to);
    if (!told) return told.error().message;
    cuda_ops::copyPages(told->parts, static_cast<int>(parts.size()),
                        static_cast<const int32_t*>(told->first), told->second,
                        static_cast<int>(from.size()), stream_);
    cudaError_t error = cudaGetLastError();
    if (error == cudaSuccess) error = cudaEventRecord(read_, cudaStream());
    if (error == cudaSuccess) return {};
    return std::string(cudaGetErrorString(error));
  }

 private:
  struct Told {
    const PagePart* parts;
    void* first;
    const int32_t* second;
  };

  cudaStream_t cudaStream() const { return static_cast<cudaStream_t>(stream_); }

  // Waits for the last copy within the pool, then writes a kernel's arguments to memory that it can
  // read.
  template <typename First>
  Result<Told> tell(const std::vector<PagePart>& parts, const std::vector<First>& first,
                    const std::vector<int32_t>& second) {
    const size_t of_parts = parts.size() * sizeof(PagePart);
    const size_t of_first = (first.size() * sizeof(First) + 7) / 8 * 8;
    const size_t all = of_parts + of_first + second.size() * sizeof(int32_t);
    cudaEventSynchronize(read_);
    if (told_bytes_ < all) {
      told_bytes_ = 0;
      ALLOT_ASSIGN(told_, pinned(2 * all));
      told_bytes_ = 2 * all;
    }
    uint8_t* const at_first = told_.get() + of_parts;
    uint8_t* const at_second = at_first + of_first;
    std::memcpy(told_.get(), parts.data(), of_parts);
    std::memcpy(at_first, first.data(), first.size() * sizeof(First));
    std::memcpy(at_second, second.data(), second.size() * sizeof(int32_t));
    return Told{reinterpret_cast<const PagePart*>(told_.get()), at_first,
                reinterpret_cast<const int32_t*>(at_second)};
  }

  kernels::cuda::Stream stream_;
  std::shared_ptr<uint8_t> told_;  // pinned
  size_t told_bytes_ = 0;
  cudaEvent_t read_ = nullptr;  // behind the last copy within the pool
};

}  // namespace

KvPlace cudaPlace(kernels::cuda::Stream stream,
                  std::shared_ptr<std::optional<std::string>> refusal) {
  KvPlace place;
  place.reserve = [](size_t bytes) -> Result<std::shared_ptr<uint8_t>> {
    void* memory = nullptr;
    cudaError_t error = cudaMalloc(&memory, bytes);
    std::shared_ptr<uint8_t> held(static_cast<uint8_t*>(memory),
                                  [](uint8_t* start) { cudaFree(start); });
    if (error == cudaSuccess) error = cudaMemset(memory, 0, bytes);
    if (error == cudaSuccess) error = cudaDeviceSynchronize();
    if (error == cudaSuccess) return held;
    cudaGetLastError();  // forgets it
    return badInput("cannot reserve " + std::to_string(bytes >> 20) +
                    " MiB of the GPU's memory for keys and values (" + cudaGetErrorString(error) +
                    "): lower --kv-memory");
  };
  place.free_bytes = freeCudaMemory;
  // Pinned memory cannot be reclaimed: the last 2 GiB are left to other processes. Prompts are then
  // read again instead of kept.
  place.reserve_host = [](size_t bytes) -> Result<std::shared_ptr<uint8_t>> {
    constexpr size_t kLeftToOthers = size_t{2} << 30;
    const size_t free = freeMemory(Device::kCpu);
    if (free == 0 || free >= bytes + kLeftToOthers) return pinned(bytes);
    return fail(ErrorCode::kIo, "the host has only " + std::to_string(free >> 20) + " MiB left");
  };
  const auto mover = std::make_shared<PageMover>(stream);
  place.move_pages = [mover](const auto&... arguments) { return mover->move(arguments...); };
  place.copy_pages = [mover, refusal = std::move(refusal)](const auto&... arguments) {
    auto why = mover->copy(arguments...);
    if (why && !*refusal) *refusal = std::move(why);
  };
  return place;
}

}  // namespace allot
