// The key pairs of workers: what the aggregator takes for a worker's own.
#include "core/worker_identity.h"

#include "tests/identity.h"
#include "tests/results.h"

namespace allot {
namespace {

TEST(WorkerIdentity, IsTheKeyOfItsSeed) {
  // RFC 8032, test 3: its public key, and its signature of another text, are known.
  const std::string seed(
      "\xc5\xaa\x8d\xf4\x3f\x9f\x83\x7b\xed\xb7\x44\x2f\x31\xdc\xb7\xb1"
      "\x66\xd3\x85\x35\x07\x6f\x09\x4b\x85\xce\x3a\x2e\x0b\x44\x58\xf7",
      kIdentitySeedBytes);
  const WorkerIdentity identity = valueOf(WorkerIdentity::make("pod-7", seed));
  const std::string signature = identity.sign({"result", "run", "spec"}, "bytes");
  ASSERT_EQ(signature.size(), kSignatureBytes);
  EXPECT_EQ(hexDigits(signature.substr(0, 32)),
            "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025");
  EXPECT_THAT(identity.name(), MatchesRegex("pod-7-[0-9A-HJKMNP-TV-Z]{16}"));
  EXPECT_EQ(identity.sign({"result", "run", "spec"}, "bytes"), signature);
  EXPECT_NE(identityOf("pod-7").name(), identity.name());
}

TEST(WorkerIdentity, SignsForItselfAlone) {
  const WorkerIdentity identity = identityOf("one"), other = identityOf("other");
  const std::string name = identity.name();
  for (const std::string& bytes :
       {std::string(), std::string("a\0b", 3), std::string(300'000, 'x')}) {
    const std::string signature = identity.sign({"result", "run", "spec"}, bytes);
    EXPECT_THAT(checkSignature(name, {"result", "run", "spec"}, bytes, signature), succeeds());
    EXPECT_THAT(checkSignature(name, {"result", "run", "spec"}, bytes + " ", signature),
                isError(ErrorCode::kData, HasSubstr("of another content")));
    EXPECT_FALSE(checkSignature(name, {"evaluation", "run", "spec"}, bytes, signature));
    EXPECT_FALSE(checkSignature(name, {"result", "run2", "spec"}, bytes, signature));
    EXPECT_FALSE(checkSignature(name, {"result", "run", "spec2"}, bytes, signature));
    EXPECT_THAT(checkSignature(other.name(), {"result", "run", "spec"}, bytes, signature),
                isError(ErrorCode::kData, HasSubstr("another key")));
    EXPECT_THAT(checkSignature(name, {"result", "run", "spec"}, bytes,
                               other.sign({"result", "run", "spec"}, bytes)),
                isError(ErrorCode::kData, HasSubstr("another key")));
    // Under the other's key, the signature of this one.
    const std::string mixed =
        other.sign({"result", "run", "spec"}, bytes).substr(0, 32) + signature.substr(32);
    EXPECT_FALSE(checkSignature(other.name(), {"result", "run", "spec"}, bytes, mixed));
  }
}

TEST(WorkerIdentity, EachBitOfASignatureAndEachCharacterOfANameCount) {
  const WorkerIdentity identity = identityOf("one");
  const std::string name = identity.name(),
                    signature = identity.sign({"result", "run", "spec"}, "bytes");
  for (size_t i = 0; i < signature.size(); ++i) {
    std::string changed = signature;
    changed[i] = static_cast<char>(changed[i] ^ (1 << i % 8));
    EXPECT_FALSE(checkSignature(name, {"result", "run", "spec"}, "bytes", changed)) << i;
    EXPECT_THAT(checkSignature(name, {"result", "run", "spec"}, "bytes", signature.substr(0, i)),
                isError(ErrorCode::kData, "it has no worker's signature"));
  }
  EXPECT_FALSE(checkSignature(name, {"result", "run", "spec"}, "bytes", signature + "x"));
  for (size_t i = name.size() - 17; i < name.size(); ++i) {
    std::string changed = name;
    changed[i] = changed[i] == '0' ? '1' : '0';
    EXPECT_FALSE(checkSignature(changed, {"result", "run", "spec"}, "bytes", signature)) << i;
  }
  EXPECT_FALSE(checkSignature("", {"result", "run", "spec"}, "bytes", signature));
  EXPECT_FALSE(checkSignature(name.substr(4), {"result", "run", "spec"}, "bytes", signature));
}

}  // namespace
}  // namespace allot
