# Conventions of this project's targets: one folder, one library `allot::<folder>`.

add_library(allot_options INTERFACE)
target_include_directories(allot_options INTERFACE ${PROJECT_SOURCE_DIR})
target_compile_options(allot_options INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wpedantic>
  $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra --expt-relaxed-constexpr>)
if(ALLOT_WERROR)
  target_compile_options(allot_options INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-Werror> $<$<COMPILE_LANGUAGE:CUDA>:--Werror=all-warnings>)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # g++ 12 sees overlapping copies in `"a" + std::string` (GCC bug 105651).
  target_compile_options(allot_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-restrict>)
endif()

# allot_library(NAME SOURCES... LINK targets...): the library of one folder.
function(allot_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINK" ${ARGN})
  add_library(allot_${name} STATIC ${ARG_SOURCES})
  add_library(allot::${name} ALIAS allot_${name})
  target_link_libraries(allot_${name} PUBLIC ${ARG_LINK} PRIVATE allot_options)
  target_include_directories(allot_${name} PUBLIC ${PROJECT_SOURCE_DIR})
endfunction()

# allot_program(NAME SOURCES... LINK targets...): an executable in build/bin.
function(allot_program name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINK" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ${ARG_LINK} allot_options)
endfunction()
