# cmake -DDIR=... -DOUT=... -P embed_lua.cmake: writes the scripts of DIR into OUT/lua_scripts.h and .cpp,
# each with the SHA-1 that EVALSHA calls it by and with what its first lines say:
#
#   -- roles: worker, aggregator
#   -- keys: 1 lease r, 2 pending rw, 3 inbox|eval d
#
# Roles are the users of acl.h that call it. Keys come in the order of KEYS, without the run's prefix: r
# reads, w writes, d deletes the key whole; with | between names if calls differ. A line of keys that
# ends with a comma goes on in the next one. The commands are read out of the script.
function(refuse file sentence)
  message(FATAL_ERROR "${file} ${sentence}")
endfunction()

# The members of a list as C++: {a, b}.
function(embrace items result)
  list(JOIN items ", " text)
  set(${result} "{${text}}" PARENT_SCOPE)
endfunction()

# Roles of a script as C++; `text` as its first line has it.
function(read_roles file text result)
  string(REPLACE ", " ";" items "${text}")
  set(roles)
  foreach(item IN LISTS items)
    if(NOT item MATCHES "^(worker|aggregator|reader)$")
      refuse(${file} "has the role \"${item}\": name worker, aggregator or reader, with commas between them")
    endif()
    list(APPEND roles "\"${item}\"")
  endforeach()
  embrace("${roles}" roles)
  set(${result} "${roles}" PARENT_SCOPE)
endfunction()

# KEYS of a script as C++; `text` as its first lines have it.
function(read_keys file text result)
  string(REGEX REPLACE ",(\n--)? +" ";" items "${text}")
  set(place 0)
  set(keys)
  foreach(item IN LISTS items)
    math(EXPR place "${place} + 1")
    if(NOT item MATCHES "^${place} ([a-z_:]+)([a-z_|]*) (r|w|d|rw|rd|wd|rwd)$")
      refuse(${file} "has \"${item}\" as its key ${place}: write its number, its name and r, w or d, as in \"${place} lease rw\"")
    endif()
    list(APPEND keys "{\"${CMAKE_MATCH_1}\", \"${CMAKE_MATCH_2}\", \"${CMAKE_MATCH_3}\"}")
  endforeach()
  embrace("${keys}" keys)
  set(${result} "${keys}" PARENT_SCOPE)
endfunction()

# The Redis commands of a script as C++, in lower case.
function(read_commands file text result)
  string(REGEX MATCHALL "redis\\.p?call" calls "${text}")
  string(REGEX MATCHALL "redis\\.p?call\\('[A-Z]+'" named "${text}")
  list(LENGTH calls calls)
  list(LENGTH named count)
  if(NOT calls EQUAL count)
    refuse(${file} "calls a command that is not written out: write redis.call('GET', ...), so that the accounts allow it")
  endif()
  set(commands)
  foreach(call IN LISTS named)
    string(REGEX REPLACE ".*'([A-Z]+)'" "\"\\1\"" command "${call}")
    string(TOLOWER "${command}" command)
    list(APPEND commands "${command}")
  endforeach()
  list(SORT commands)
  list(REMOVE_DUPLICATES commands)
  embrace("${commands}" commands)
  set(${result} "${commands}" PARENT_SCOPE)
endfunction()

file(GLOB files ${DIR}/*.lua)
list(SORT files)
set(header "#pragma once\n// Generated from store/redis/lua by embed_lua.cmake. Constants, any thread.\n")
string(APPEND header "#include \"store/redis/redis_connection.h\"\n\nnamespace allot::lua {\n\n")
set(code "// Generated from store/redis/lua by embed_lua.cmake.\n#include \"store/redis/lua_scripts.h\"\n\n")
string(APPEND code "namespace allot::lua {\n\n")
set(all)
foreach(file ${files})
  get_filename_component(name ${file} NAME_WE)
  file(READ ${file} text)
  if(NOT text MATCHES "^-- roles: ([^\n]+)\n-- keys: (([^\n]+,\n-- +)*[^\n]*[^,\n])\n")
    refuse(${file} "does not begin with the lines of roles and keys that embed_lua.cmake describes: write them")
  endif()
  set(keys "${CMAKE_MATCH_2}")
  read_roles(${file} "${CMAKE_MATCH_1}" roles)
  read_keys(${file} "${keys}" keys)
  read_commands(${file} "${text}" commands)
  string(SHA1 sha1 "${text}")
  string(APPEND header "extern const RedisScript ${name};\n")
  string(APPEND code "constexpr std::string_view ${name}_roles[] = ${roles};\n"
                     "constexpr ScriptKey ${name}_keys[] = ${keys};\n"
                     "constexpr std::string_view ${name}_commands[] = ${commands};\n"
                     "const RedisScript ${name} = {\"${name}\", \"${sha1}\",\n"
                     "R\"lua(${text})lua\", ${name}_roles, ${name}_keys, ${name}_commands};\n\n")
  list(APPEND all "&${name}")
endforeach()
embrace("${all}" all)
string(APPEND header "\n// All of them, by name.\nextern const std::span<const RedisScript* const> scripts;\n")
string(APPEND code "constexpr const RedisScript* all[] = ${all};\n"
                   "const std::span<const RedisScript* const> scripts = all;\n")
foreach(part header code)
  string(APPEND ${part} "\n}  // namespace allot::lua\n")
endforeach()
file(WRITE ${OUT}/lua_scripts.h "${header}")
file(WRITE ${OUT}/lua_scripts.cpp "${code}")
