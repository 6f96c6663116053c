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
  if(ALLOT_UNITY)
    # A source that another one includes looks like a header to it, where this would be a trap.
    target_compile_options(allot_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-subobject-linkage>)
  endif()
endif()

# Half of the compiler's time goes into headers: with ALLOT_UNITY up to eight sources are compiled as one,
# which includes them. Not CMake's UNITY_BUILD: it names sources by their whole path, which makes them
# strangers to what ccache keeps of another clone. Alone stay what has flags of its own and what is generated.
function(allot_group out name)
  set(alone)
  set(grouped)
  foreach(source ${ARGN})
    get_filename_component(path ${source} ABSOLUTE)
    get_source_file_property(definitions ${source} COMPILE_DEFINITIONS)
    get_source_file_property(options ${source} COMPILE_OPTIONS)
    cmake_path(IS_PREFIX CMAKE_BINARY_DIR ${path} generated)
    if(ALLOT_UNITY AND path MATCHES "\\.cpp$" AND NOT generated AND NOT definitions AND NOT options)
      file(RELATIVE_PATH path ${PROJECT_SOURCE_DIR} ${path})
      list(APPEND grouped ${path})
    else()
      list(APPEND alone ${source})
    endif()
  endforeach()
  list(LENGTH grouped count)
  if(count LESS 2)
    set(${out} ${ARGN} PARENT_SCOPE)
    return()
  endif()
  math(EXPR groups "(${count} + 7) / 8")
  set(index 0)
  foreach(path ${grouped})
    math(EXPR group "${index} * ${groups} / ${count}")
    string(APPEND text_${group} "#include \"${path}\"\n")
    math(EXPR index "${index} + 1")
  endforeach()
  set(group 0)
  while(group LESS groups)
    set(file ${CMAKE_CURRENT_BINARY_DIR}/${name}_${group}.cpp)
    file(CONFIGURE OUTPUT ${file} CONTENT "${text_${group}}" @ONLY)
    list(APPEND alone ${file})
    math(EXPR group "${group} + 1")
  endwhile()
  set(${out} ${alone} PARENT_SCOPE)
endfunction()

# allot_library(NAME [APART] SOURCES... LINK targets...): the library of one folder. APART: each source is
# compiled alone, whatever ALLOT_UNITY says.
function(allot_library name)
  cmake_parse_arguments(ARG "APART" "" "SOURCES;LINK" ${ARGN})
  if(NOT ARG_APART)
    allot_group(ARG_SOURCES allot_${name} ${ARG_SOURCES})
  endif()
  add_library(allot_${name} STATIC ${ARG_SOURCES})
  add_library(allot::${name} ALIAS allot_${name})
  target_link_libraries(allot_${name} PUBLIC ${ARG_LINK} PRIVATE allot_options)
  target_include_directories(allot_${name} PUBLIC ${PROJECT_SOURCE_DIR})
endfunction()

# allot_compile_fast(NAME...): what waits for people, disks and the network is compiled in two thirds of the
# time, with -O1.
function(allot_compile_fast)
  foreach(name ${ARGN})
    target_compile_options(${name} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-O1>)
  endforeach()
endfunction()

# allot_program(NAME [APART] SOURCES... LINK targets...): an executable in build/bin.
function(allot_program name)
  cmake_parse_arguments(ARG "APART" "" "SOURCES;LINK" ${ARGN})
  if(NOT ARG_APART)
    allot_group(ARG_SOURCES ${name} ${ARG_SOURCES})
  endif()
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ${ARG_LINK} allot_options)
endfunction()
