#include "cli/inputs/sign_option.h"

#include "engine/signature.h"

namespace octavo::cli {

Option* add_sign_option(Arguments& app, std::string& to) {
  return app
      .add_option(
          "--sign", to,
          "Sign the engine file with this private Ed25519 key, for --verify; make one: openssl genpkey -algorithm ed25519 -out "
          "private.pem, its public half: openssl pkey -in private.pem -pubout -out public.pem")
      ->reads("PRIVATE.pem");
}

Result<std::string> signing_key(const std::string& file) {
  if (file.empty()) return std::string();
  OCTAVO_TRY(std::string key, engine::read_key(file));
  OCTAVO_CHECK(engine::sign({}, key));
  return key;
}

}  // namespace octavo::cli
