# cmake -DDIR=... -DOUT=... -DNAMES=a,b -P embed_lua.cmake: writes the scripts into a C++ file, each
# with the SHA-1 that EVALSHA calls it by.
string(REPLACE "," ";" NAMES "${NAMES}")
set(code "// Generated from store/lua by embed_lua.cmake.\n#include \"store/lua_scripts.h\"\n\n")
string(APPEND code "namespace allot::lua {\n\n")
foreach(name ${NAMES})
  file(READ "${DIR}/${name}.lua" text)
  string(SHA1 sha1 "${text}")
  string(APPEND code "const RedisScript ${name} = {\"${name}\", \"${sha1}\",\n"
                     "R\"lua(${text})lua\"};\n\n")
endforeach()
string(APPEND code "}  // namespace allot::lua\n")
file(WRITE "${OUT}" "${code}")
