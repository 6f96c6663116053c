# The PyTorch of a Python, for python/operators: ALLOT_TORCH_INCLUDES, ALLOT_TORCH_LIBRARIES,
# ALLOT_TORCH_DEFINITIONS, and ALLOT_TORCH_CUDA_VERSION ("" for one of CPUs).
#
# Not find_package(Torch): the package of a PyTorch with CUDA does not load where there is no CUDA
# toolkit, and operators for CPUs need none.
find_package(Python REQUIRED COMPONENTS Interpreter)
# -E: pip builds in an environment of its own, where the PyTorch that is installed is hidden by PYTHONPATH.
execute_process(
  COMMAND ${Python_EXECUTABLE} -E -c "
import os, sys
try:
    import torch
except ImportError as error:
    sys.exit(f'allot builds against the PyTorch that is installed: pip install torch first ({error})')
folder = os.path.dirname(torch.__file__)
include = os.path.join(folder, 'include')
print(';'.join([include, os.path.join(include, 'torch', 'csrc', 'api', 'include')]),
      os.path.join(folder, 'lib'), torch.__version__, torch.version.cuda or '',
      int(torch.compiled_with_cxx11_abi()), sep='\\n')"
  OUTPUT_VARIABLE answer ERROR_VARIABLE why RESULT_VARIABLE status OUTPUT_STRIP_TRAILING_WHITESPACE)
if(NOT status EQUAL 0)
  message(FATAL_ERROR "${why}")
endif()
string(REGEX REPLACE ";" "\\\\;" answer "${answer}")
string(REPLACE "\n" ";" answer "${answer}")
list(GET answer 0 ALLOT_TORCH_INCLUDES)
list(GET answer 1 folder)
list(GET answer 2 version)
list(GET answer 3 ALLOT_TORCH_CUDA_VERSION)
list(GET answer 4 abi)
message(STATUS "PyTorch ${version} of ${Python_EXECUTABLE}")
# Kernels of another CUDA than PyTorch's would bring a second runtime into the process.
if(ALLOT_TORCH_CUDA_VERSION AND ALLOT_NVCC)
  execute_process(COMMAND ${ALLOT_NVCC} --version OUTPUT_VARIABLE nvcc)
  string(REGEX MATCH "release ([0-9]+)" nvcc "${nvcc}")
  if(NOT ALLOT_TORCH_CUDA_VERSION MATCHES "^${CMAKE_MATCH_1}[.]")
    message(STATUS "for CPUs alone: nvcc is of CUDA ${CMAKE_MATCH_1}, PyTorch of ${ALLOT_TORCH_CUDA_VERSION}")
    set(ALLOT_TORCH_CUDA_VERSION "")
  endif()
endif()
set(ALLOT_TORCH_DEFINITIONS _GLIBCXX_USE_CXX11_ABI=${abi})
set(ALLOT_TORCH_LIBRARIES)
foreach(name c10 torch_cpu)
  find_library(ALLOT_${name} ${name} HINTS ${folder} REQUIRED)
  list(APPEND ALLOT_TORCH_LIBRARIES ${ALLOT_${name}})
endforeach()
