#pragma once
// The Redis accounts of an experiment and their permissions, as a Redis ACL file (Redis 7 or newer:
// an older one cannot permit only reading a key). Used by the command line and the operator; any
// thread. Redis runs a script as the user that calls it. A user therefore needs every command of
// its scripts, on every key that they name: store/redis/lua/*.lua say which.
#include <map>
#include <string>
#include <vector>

#include "core/result.h"

namespace allot {

struct AclRole {
  std::string name;
  std::vector<std::string> keys;      // key permissions of Redis 7: ~pattern, %R~pattern
  std::vector<std::string> commands;  // in lower case
};

// Returns the roles: worker; aggregator, also for people's commands that change a run; admin, for
// people, which has no keys, ends scripts and connections and has users.acl read again; reader,
// which changes nothing and has PING for health checks.
const std::vector<AclRole>& aclRoles();

// Returns passwords of 256 random bits, by role.
Result<std::map<std::string, std::string>> newPasswords();
// Returns the contents of users.acl and of a file like worker.password for each role, by file
// name. users.acl has the SHA-256 of the passwords, and the default user is off.
// Requires: a password for each role.
std::map<std::string, std::string> accountFiles(
    const std::map<std::string, std::string>& passwords);

// Makes the folder, and those above it, with users.acl and new passwords, as files that only
// the owner can read, all or none of them. A folder that has a users.acl keeps its passwords and
// gets the users.acl of this build. kUsage if the folder has other files, or its passwords cannot
// be read.
Status writeAcl(const std::string& folder);

}  // namespace allot
