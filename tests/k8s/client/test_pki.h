#pragma once
// TestPki: an authority made for one test, and certificates from it. One thread.
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <memory>
#include <stdexcept>
#include <string>

#include "tests/temp_folder.h"

namespace allot::kube::test {

class TestPki {
 public:
  TestPki() : ca_key_(EVP_EC_gen("P-256")) {
    X509* ca = newCertificate("allot test CA", ca_key_.get());
    addExtension(ca, NID_basic_constraints, "critical,CA:TRUE");
    addExtension(ca, NID_key_usage, "critical,keyCertSign");
    X509_set_issuer_name(ca, X509_get_subject_name(ca));
    X509_sign(ca, ca_key_.get(), EVP_sha256());
    ca_.reset(ca);
    writeCertificate(ca, ca_file());
  }

  std::string ca_file() const { return folder_.path() + "/ca.crt"; }

  // NAME.crt and NAME.key. alt: "IP:127.0.0.1", "DNS:kubernetes"; "" for a client.
  struct Pair {
    std::string certificate_file;
    std::string key_file;
  };
  Pair issue(const std::string& name, const std::string& alt) const {
    const Key key(EVP_EC_gen("P-256"));
    const Certificate made(newCertificate(name, key.get()));
    X509_set_issuer_name(made.get(), X509_get_subject_name(ca_.get()));
    if (!alt.empty()) addExtension(made.get(), NID_subject_alt_name, alt);
    X509_sign(made.get(), ca_key_.get(), EVP_sha256());
    Pair pair{folder_.path() + "/" + name + ".crt", folder_.path() + "/" + name + ".key"};
    writeCertificate(made.get(), pair.certificate_file);
    const File file(pair.key_file);
    PEM_write_PrivateKey(file.get(), key.get(), nullptr, nullptr, 0, nullptr, nullptr);
    return pair;
  }

 private:
  struct FreeKey {
    void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
  };
  struct FreeCertificate {
    void operator()(X509* certificate) const { X509_free(certificate); }
  };
  using Key = std::unique_ptr<EVP_PKEY, FreeKey>;
  using Certificate = std::unique_ptr<X509, FreeCertificate>;

  class File {
   public:
    explicit File(const std::string& path) : file_(std::fopen(path.c_str(), "w")) {
      if (file_ == nullptr) throw std::runtime_error("cannot write " + path);
    }
    ~File() { std::fclose(file_); }
    File(const File&) = delete;
    File& operator=(const File&) = delete;
    FILE* get() const { return file_; }

   private:
    FILE* file_;
  };

  static X509* newCertificate(const std::string& name, EVP_PKEY* key) {
    static long serial = 0;
    X509* made = X509_new();
    X509_set_version(made, X509_VERSION_3);
    ASN1_INTEGER_set(X509_get_serialNumber(made), ++serial);
    X509_gmtime_adj(X509_getm_notBefore(made), -3600);
    X509_gmtime_adj(X509_getm_notAfter(made), 24 * 3600);
    X509_set_pubkey(made, key);
    X509_NAME_add_entry_by_txt(X509_get_subject_name(made), "CN", MBSTRING_ASC,
                               reinterpret_cast<const unsigned char*>(name.c_str()), -1, -1, 0);
    return made;
  }
  static void addExtension(X509* certificate, int nid, const std::string& value) {
    X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, nullptr, nid, value.c_str());
    X509_add_ext(certificate, extension, -1);
    X509_EXTENSION_free(extension);
  }
  static void writeCertificate(X509* certificate, const std::string& path) {
    const File file(path);
    PEM_write_X509(file.get(), certificate);
  }

  TempFolder folder_;
  Key ca_key_;
  Certificate ca_;
};

}  // namespace allot::kube::test
