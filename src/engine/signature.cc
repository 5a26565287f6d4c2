#include "engine/signature.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>

#include "base/read_file.h"

#ifdef OCTAVO_OPENSSL
#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#endif

namespace octavo::engine {
namespace {

constexpr std::string_view kMagic{"OCTAVO-ED25519\0\1", 16};
constexpr std::size_t kKeyBytes = 32, kEndBytes = 16;
[[maybe_unused]] constexpr std::size_t kSignature = 64;

}  // namespace

bool is_signature(std::span<const std::byte> bytes) {
  const auto zero = [](std::byte b) { return b == std::byte{0}; };
  return bytes.size() == kSignatureBytes && std::memcmp(bytes.data(), kMagic.data(), kMagic.size()) == 0 &&
         std::ranges::all_of(bytes.last(kEndBytes), zero);
}

Result<std::string> read_key(const std::string& key) {
  constexpr std::string_view kBegin = "-----BEGIN ";
  if (key.starts_with(kBegin)) return key;
  OCTAVO_TRY(const auto bytes, read_file(key, "key"));
  std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (text.find(kBegin) != std::string::npos) return text;
  return fail(
      ErrorKind::usage,
      fmt::format("key \"{}\": it is no PEM file\n  make a pair: openssl genpkey -algorithm ed25519 -out private.pem; openssl pkey "
                  "-in private.pem -pubout -out public.pem",
                  key));
}

#ifdef OCTAVO_OPENSSL
namespace {

struct Free {
  void operator()(BIO* b) const { BIO_free(b); }
  void operator()(EVP_PKEY* k) const { EVP_PKEY_free(k); }
  void operator()(EVP_MD_CTX* c) const { EVP_MD_CTX_free(c); }
};
using Key = std::unique_ptr<EVP_PKEY, Free>;

/// OpenSSL would ask the terminal.
int no_password(char*, int, int, void*) {
  return -1;
}

Result<Key> parse(const std::string& pem, bool is_private) {
  const std::unique_ptr<BIO, Free> in(BIO_new_mem_buf(pem.data(), static_cast<int>(std::min<std::size_t>(pem.size(), 1 << 20))));
  Key key(is_private ? PEM_read_bio_PrivateKey(in.get(), nullptr, no_password, nullptr)
                     : PEM_read_bio_PUBKEY(in.get(), nullptr, no_password, nullptr));
  if (key != nullptr && EVP_PKEY_base_id(key.get()) == EVP_PKEY_ED25519) return key;
  const bool swapped = (pem.find("PUBLIC KEY") != std::string::npos) == is_private;
  return fail(ErrorKind::usage,
              fmt::format("the {} key is {}\n  {}", is_private ? "private" : "public",
                          swapped ? (is_private ? "a public one" : "a private one, or none at all")
                                  : (key == nullptr ? "damaged, or protected by a password" : "not of the kind Ed25519"),
                          is_private ? "make one: openssl genpkey -algorithm ed25519 -out private.pem"
                                     : "take it from the private one: openssl pkey -in private.pem -pubout -out public.pem"));
}

Result<std::array<unsigned char, kKeyBytes>> raw(const Key& key) {
  std::array<unsigned char, kKeyBytes> out{};
  std::size_t size = out.size();
  if (EVP_PKEY_get_raw_public_key(key.get(), out.data(), &size) == 1 && size == out.size()) return out;
  return fail(ErrorKind::internal, "OpenSSL gives no public key of 32 bytes");
}

std::string hex(std::span<const unsigned char> bytes) {
  std::string out;
  for (const unsigned char b : bytes.first(8)) out += fmt::format("{:02x}", b);
  return out + "...";
}

const unsigned char* chars(std::span<const std::byte> bytes) {
  return reinterpret_cast<const unsigned char*>(bytes.data());
}

}  // namespace

Result<std::string> public_half(const std::string& private_key) {
  OCTAVO_TRY(const Key key, parse(private_key, true));
  const std::unique_ptr<BIO, Free> out(BIO_new(BIO_s_mem()));
  char* text = nullptr;
  if (PEM_write_bio_PUBKEY(out.get(), key.get()) == 1) {
    if (const long size = BIO_get_mem_data(out.get(), &text); size > 0) return std::string(text, static_cast<std::size_t>(size));
  }
  return fail(ErrorKind::internal, "OpenSSL gives no public key in PEM");
}

Result<std::string> sign(std::span<const std::byte> file, const std::string& private_key) {
  OCTAVO_TRY(const Key key, parse(private_key, true));
  OCTAVO_TRY(const auto its, raw(key));
  std::array<unsigned char, kSignature> signature{};
  std::size_t size = signature.size();
  const std::unique_ptr<EVP_MD_CTX, Free> context(EVP_MD_CTX_new());
  if (EVP_DigestSignInit(context.get(), nullptr, nullptr, nullptr, key.get()) != 1 ||
      EVP_DigestSign(context.get(), signature.data(), &size, chars(file), file.size()) != 1 || size != signature.size())
    return fail(ErrorKind::internal, "OpenSSL cannot sign with this key");
  std::string out(kMagic);
  out.append(reinterpret_cast<const char*>(its.data()), its.size());
  out.append(reinterpret_cast<const char*>(signature.data()), signature.size());
  out.append(kEndBytes, '\0');
  return out;
}

Status verify_signature(std::span<const std::byte> file, const std::string& public_key, std::string_view name) {
  const auto bad = [&](const std::string& what) {
    return fail(ErrorKind::bad_engine, fmt::format("engine \"{}\": {}; it is not loaded", name, what));
  };
  OCTAVO_TRY(const Key key, parse(public_key, false));
  OCTAVO_TRY(const auto wanted, raw(key));
  if (file.size() < kSignatureBytes || !is_signature(file.last(kSignatureBytes)))
    return bad("it is not signed, and a signature was asked for (octavo build --sign KEY signs)");
  const auto tail = file.last(kSignatureBytes);
  const auto its = tail.subspan(kMagic.size(), kKeyBytes), signature = tail.subspan(kMagic.size() + kKeyBytes, kSignature);
  if (std::memcmp(its.data(), wanted.data(), kKeyBytes) != 0)
    return bad(fmt::format("it was signed by the key {}, the key to verify with is {}", hex({chars(its), kKeyBytes}), hex(wanted)));
  const std::unique_ptr<EVP_MD_CTX, Free> context(EVP_MD_CTX_new());
  const auto body = file.first(file.size() - kSignatureBytes);
  if (EVP_DigestVerifyInit(context.get(), nullptr, nullptr, nullptr, key.get()) != 1 ||
      EVP_DigestVerify(context.get(), chars(signature), signature.size(), chars(body), body.size()) != 1)
    return bad(fmt::format("its signature by the key {} does not match: the file was changed after it was signed", hex(wanted)));
  return {};
}
#else
Result<std::string> public_half(const std::string&) {
  return sign({}, {});
}

Result<std::string> sign(std::span<const std::byte>, const std::string&) {
  return fail(ErrorKind::unsupported, "signing: this Octavo was built without OpenSSL\n  install libssl-dev and build it again");
}

Status verify_signature(std::span<const std::byte>, const std::string&, std::string_view name) {
  return fail(ErrorKind::unsupported, fmt::format("engine \"{}\": its signature cannot be verified, this Octavo was built without "
                                                  "OpenSSL; it is not loaded\n  install libssl-dev and build it again",
                                                  name));
}
#endif

}  // namespace octavo::engine
