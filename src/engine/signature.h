// Signatures of engine files: Ed25519 (RFC 8032) by OpenSSL's libcrypto. Keys are PEM, as openssl makes them:
//   openssl genpkey -algorithm ed25519 -out private.pem
//   openssl pkey -in private.pem -pubout -out public.pem
//
// A signed file is the file followed by 128 bytes: 16 of "OCTAVO-ED25519\0\1", the 32 bytes of the public key, the 64 of the signature over
// every byte before them, 16 zeros.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"

namespace octavo::engine {

inline constexpr std::size_t kSignatureBytes = 128;

/// Are these the 128 bytes of a signature, right or wrong?
[[nodiscard]] bool is_signature(std::span<const std::byte> bytes);

/// A key as PEM text: `key` itself if it is one ("-----BEGIN ..."), else what the file of that name holds. Errors: io; usage for a file that
/// is no PEM.
[[nodiscard]] Result<std::string> read_key(const std::string& key);

/// The public half of a private key, as PEM text. Errors: as sign.
[[nodiscard]] Result<std::string> public_half(const std::string& private_key);

/// The bytes to put behind `file`. Errors: usage for what is no private Ed25519 key without a password; unsupported in a build without OpenSSL.
[[nodiscard]] Result<std::string> sign(std::span<const std::byte> file, const std::string& private_key);

/// Everything in `file` but the signature at its end is what the owner of the key signed. `name` is for messages. Errors: bad_engine for a file
/// that is not signed, was signed by another key or was changed; usage and unsupported as above. Cost: some 1.5 ns a byte.
[[nodiscard]] Status verify_signature(std::span<const std::byte> file, const std::string& public_key, std::string_view name);

}  // namespace octavo::engine
