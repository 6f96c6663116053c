// The first lines of store/redis/lua/*.lua say what the scripts do, and store/README.md and the
// accounts say the same.
#include <gmock/gmock.h>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <functional>
#include <map>
#include <regex>
#include <set>
#include <sstream>

#include "store/redis/acl.h"
#include "store/redis/lua_scripts.h"
#include "store/redis/redis_connection.h"
#include "tests/readme.h"
#include "tests/store/redis_server.h"

namespace allot::test {
namespace {

using ::testing::HasSubstr;
using Keys = std::set<std::string>;

// --- what a script does ---

// r, w or d, as Redis itself classes a command.
class Classes {
 public:
  char of(const std::string& command) {
    if (command == "DEL" || command == "UNLINK") return 'd';
    const auto reply = redis_.call({"COMMAND", "INFO", command});
    EXPECT_TRUE(reply) << command;
    if (!reply) return '?';
    const RedisView command_info = reply->view()[0];
    if (const char own = classOf(command_info[2]); own != '?') return own;
    // XINFO has its flags with its subcommands; HELP, one of them, has none of these.
    for (size_t i = 0; i < command_info[9].size(); ++i) {
      if (const char of = classOf(command_info[9][i][2]); of != '?') return of;
    }
    return '?';
  }

 private:
  static char classOf(const RedisView& flags) {
    for (size_t i = 0; i < flags.size(); ++i) {
      if (flags[i].text() == "write") return 'w';
      if (flags[i].text() == "readonly") return 'r';
    }
    return '?';
  }

  RedisServer server_;
  RedisConnection redis_{*parseRedisUrl(server_.url()), 5000};
};

// Which access the calls of a script have to each of its keys: `for i = 3, #KEYS` is to all from
// the third on, `for i = 3, 7` to the third to seventh.
std::vector<std::string> accessOf(const RedisScript& script, Classes& classes) {
  const std::string text(script.text);
  std::vector<std::set<char>> seen(script.keys.size());
  std::smatch loop;
  std::regex_search(text, loop, std::regex("for i = ([0-9]+), (#KEYS|[0-9]+)"));
  const std::regex call(
      R"(redis\.p?call\('([A-Z]+)'(?:, '(?:STREAM|USAGE)')?((?:,\s*KEYS\[\w+\])*))");
  const std::regex key(R"(KEYS\[(\w+)\])");
  size_t named = 0;
  for (std::sregex_iterator it(text.begin(), text.end(), call), end; it != end; ++it) {
    const std::string keys = (*it)[2];
    for (std::sregex_iterator k(keys.begin(), keys.end(), key); k != end; ++k, ++named) {
      const bool all = (*k)[1] == "i";
      const size_t from = std::stoul(all ? loop[1] : (*k)[1]);
      const size_t to = !all ? from : loop[2] == "#KEYS" ? seen.size() : std::stoul(loop[2]);
      EXPECT_LE(to, seen.size()) << script.name;
      for (size_t i = from; i <= to; ++i) seen.at(i - 1).insert(classes.of((*it)[1]));
    }
  }
  // No key is used otherwise.
  EXPECT_EQ(named, static_cast<size_t>(
                       std::distance(std::sregex_iterator(text.begin(), text.end(), key), {})))
      << script.name;
  std::vector<std::string> access;
  for (const std::set<char>& letters : seen) {
    std::string& word = access.emplace_back();
    for (const char letter : {'r', 'w', 'd', '?'})
      if (letters.contains(letter)) word += letter;
  }
  return access;
}

TEST(Scripts, SayWhatTheyDoWithEachKey) {
  Classes classes;
  ASSERT_GT(lua::scripts.size(), 30u);
  for (const RedisScript* script : lua::scripts) {
    const auto access = accessOf(*script, classes);
    for (size_t i = 0; i < access.size(); ++i)
      EXPECT_EQ(script->keys[i].access, access[i])
          << "key " << i + 1 << ", " << script->keys[i].name << ", of " << script->name << ".lua";
  }
}

// The keys that scripts have such an access to; `of` chooses among them.
Keys keysWith(char access, const std::function<bool(const RedisScript&)>& of) {
  Keys keys;
  for (const RedisScript* script : lua::scripts) {
    if (!of(*script)) continue;
    for (const ScriptKey& key : script->keys) {
      if (key.access.find(access) == std::string_view::npos) continue;
      for (const std::string_view name : key.names()) keys.emplace(name);
    }
  }
  return keys;
}

bool any(const RedisScript&) { return true; }

TEST(Scripts, ForgetAllThatARunGathersWhenItIsReplacedOrImported) {
  Keys gathered = keysWith('w', any);
  for (const char* kept : {"allot:index", "beats", "import", "lease", "news", "spec", "workers"})
    EXPECT_EQ(gathered.erase(kept), 1u) << kept;
  EXPECT_EQ(keysWith('d', [](const auto& script) { return &script == &lua::begin_import; }),
            gathered);
  gathered.erase("control");
  EXPECT_EQ(keysWith('d', [](const auto& script) { return &script == &lua::replace_run; }),
            gathered);
}

// --- how it is read ---

// What embedding says to a script of this text; "" if it takes it.
std::string embedding(const std::string& text) {
  const TempFolder folder;
  folder.write("bad.lua", text);
  const std::string command = std::string(ALLOT_CMAKE) + " -DDIR=" + folder.path() +
                              " -DOUT=" + folder.path() + " -P " + ALLOT_SOURCE_DIR +
                              "/store/redis/embed_lua.cmake 2>&1";
  FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return "popen failed";
  std::string said;
  for (int c = fgetc(pipe); c != EOF; c = fgetc(pipe)) {
    // CMake breaks its sentences into lines.
    if (!std::isspace(c)) {
      said += static_cast<char>(c);
    } else if (!said.ends_with(' ')) {
      said += ' ';
    }
  }
  return pclose(pipe) == 0 ? "" : said;
}

TEST(Scripts, WithoutTheirFirstLinesAreRefused) {
  const std::string roles = "-- roles: worker, reader\n";
  EXPECT_EQ(
      embedding(roles + "-- keys: 1 a r,\n--       2 b|c|d rwd\n-- Prose.\nredis.call('GET')"), "");
  for (const auto& [text, sentence] : std::map<std::string, std::string>{
           {"redis.call('GET')\n", "bad.lua does not begin with the lines of roles and keys"},
           {roles + "redis.call('GET')\n", "does not begin with the lines of roles and keys"},
           {"-- keys: 1 a r\n" + roles, "does not begin with the lines of roles and keys"},
           {"-- roles: boss\n-- keys: 1 a r\n", "has the role \"boss\": name worker,"},
           {roles + "-- keys: 1 a r, 3 b r\n", "has \"3 b r\" as its key 2: write its number"},
           {roles + "-- keys: 1 a x\n", "has \"1 a x\" as its key 1"},
           {roles + "-- keys: 1 a\n", "has \"1 a\" as its key 1"},
           {roles + "-- keys: 1 a r,\n-- Prose.\n", "has \"Prose.\" as its key 2"},
           {roles + "-- keys: 1 a r\nredis.call(name)\n",
            "calls a command that is not written out"}})
    EXPECT_THAT(embedding(text), HasSubstr(sentence)) << text;
}

// --- what the README says of it ---

std::string quoted(const Keys& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "`" : " `") + word + "`";
  return text;
}

// The table in which `cellOf` makes one column out of the word in backquotes that a row begins
// with. Notes these words.
std::string withColumn(const std::string& table, size_t column,
                       const std::function<std::string(const std::string&)>& cellOf, Keys* words) {
  std::string out;
  std::istringstream lines(table);
  for (std::string line; std::getline(lines, line); out += line + "\n") {
    if (!line.starts_with("| `")) continue;
    const std::string word = between(line, "`", "`");
    words->insert(word);
    size_t begin = 0;
    for (size_t i = 0; i < column; ++i) begin = line.find('|', begin) + 1;
    line.replace(begin, line.find('|', begin) - begin, " " + cellOf(word) + " ");
  }
  return out;
}

TEST(StoreReadme, ItsTableOfKeysSaysWhichScriptsWriteThem) {
  const std::string table = between(readSource("store/README.md"), "<!-- store keys: begin -->\n",
                                    "<!-- store keys: end -->");
  const auto writers = [](const std::string& key) {
    std::string names;
    for (const RedisScript* script : lua::scripts)
      if (keysWith('w', [&](const auto& other) { return &other == script; }).contains(key))
        names += (names.empty() ? "" : ", ") + std::string(script->name);
    return names;
  };
  Keys keys;
  const std::string made = withColumn(table, 4, writers, &keys);
  EXPECT_EQ(table, made) << "To paste:\n" << made;
  EXPECT_EQ(keys, keysWith('w', any));
}

// The keys of a role in words.
std::string keysOf(const AclRole& role) {
  if (role.keys == std::vector<std::string>{"~allot:*"}) return "all";
  const Keys changed = keysWith('w', [&](const RedisScript& script) {
    return std::find(script.roles.begin(), script.roles.end(), role.name) != script.roles.end();
  });
  Keys read, write, scripts;
  for (const std::string& key : role.keys) {
    const std::string name = std::regex_replace(key, std::regex("^(%R)?~(allot:\\{\\*\\}:)?"), "");
    (key.starts_with("%R") ? read : changed.contains(name) ? write : scripts).insert(name);
  }
  if (role.keys.empty()) return "none";
  return "reads " + quoted(read) + "; writes " + quoted(write) + "; reads in scripts " +
         quoted(scripts);
}

TEST(StoreReadme, ItsTableOfAccountsIsTheAccounts) {
  const std::string table = between(readSource("store/README.md"), "<!-- accounts: begin -->\n",
                                    "<!-- accounts: end -->");
  std::map<std::string, AclRole> roles;
  for (const AclRole& role : aclRoles()) roles[role.name] = role;
  Keys rows;
  std::string made = withColumn(
      table, 2, [&](const std::string& name) { return keysOf(roles[name]); }, &rows);
  made = withColumn(
      made, 3,
      [&](const std::string& name) {
        std::string words;
        for (const std::string& command : roles[name].commands)
          words += (words.empty() ? "" : " ") + command;
        std::transform(words.begin(), words.end(), words.begin(), ::toupper);
        std::replace(words.begin(), words.end(), '|', '-');  // which ends a column
        return "`" + words + "`";
      },
      &rows);
  EXPECT_EQ(table, made) << "To paste:\n" << made;
  EXPECT_EQ(rows, (Keys{"admin", "aggregator", "reader", "worker"}));
}

}  // namespace
}  // namespace allot::test
