// --sign: the engine file that a command writes is signed.
#pragma once

#include <string>

#include "base/result.h"
#include "cli/arguments.h"

namespace octavo::cli {

/// `to`: the file of the private key.
Option* add_sign_option(Arguments& app, std::string& to);

/// The key of --sign as PEM text; empty where the option is not given. To be asked before long work: that the key can sign is tried. Errors:
/// io; usage for what is no private Ed25519 key; unsupported in a build without OpenSSL.
[[nodiscard]] Result<std::string> signing_key(const std::string& file);

}  // namespace octavo::cli
