# LibTorch, once for all folders: some versions' packages cannot be read twice.
#
# The package of a LibTorch with CUDA writes nvcc flags and architectures of its own into our
# variables; what it compiles for is its affair, so ours are put back.
foreach(name CMAKE_CUDA_FLAGS CMAKE_CUDA_ARCHITECTURES CMAKE_CUDA_STANDARD)
  set(kept_${name} "${${name}}")
endforeach()
# Without a list it compiles and runs a program that asks this machine's GPU.
if(NOT DEFINED TORCH_CUDA_ARCH_LIST)
  set(TORCH_CUDA_ARCH_LIST 9.0)
endif()
find_package(Torch REQUIRED)
foreach(name CMAKE_CUDA_FLAGS CMAKE_CUDA_ARCHITECTURES CMAKE_CUDA_STANDARD)
  set(${name} "${kept_${name}}")
endforeach()

# Decoding on a GPU takes both: our kernels and LibTorch's matrix products.
set(ALLOT_TORCH_CUDA OFF)
if(ALLOT_CUDA AND TARGET torch_cuda)
  set(ALLOT_TORCH_CUDA ON)
  find_package(CUDAToolkit REQUIRED)
  # LibTorch brings the shared runtime; one process has one.
  set(CMAKE_CUDA_RUNTIME_LIBRARY Shared)
endif()

# PyTorch's own builds export parts of a std::filesystem that call null pointers. The loader takes a
# name from the first library that has it: libstdc++ comes before libtorch. By the name of the
# library that LibTorch loads, since a compiler may link its own statically.
target_link_options(torch INTERFACE LINKER:--push-state,--no-as-needed,-l:libstdc++.so.6,--pop-state)
