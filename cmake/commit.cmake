# Writes OUT, a C++ source with the commit of SOURCE, if the commit changed. Sources that differ from their commit are
# marked "-dirty".
set(commit "")
find_program(GIT git)
# A folder above the sources may be a repository of something else.
if(GIT AND EXISTS ${SOURCE}/.git)
  execute_process(COMMAND ${GIT} -C ${SOURCE} describe --always --dirty --abbrev=10 --exclude=*
    OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
if(commit)
  set(commit "commit ${commit}")
else()
  set(commit "unknown commit")
endif()
file(CONFIGURE OUTPUT ${OUT} CONTENT [[
#include "core/build.h"

namespace allot {

const std::string& buildText() {
  static const std::string text = "allot @VERSION@ (@commit@, @COMPILER@)";
  return text;
}

}  // namespace allot
]] @ONLY)
