#include "base/result.h"

namespace octavo {

OCTAVO_DEFINE_OUT_OF_LINE(Error);

Error::Error(ErrorKind what, std::string text, Reasons why) : kind(what), message(std::move(text)), reasons(std::move(why)) {}

tl::unexpected<Error> fail(ErrorKind kind, std::string message) {
  return tl::unexpected<Error>(Error(kind, std::move(message)));
}

int exit_code(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::usage: return 2;
    case ErrorKind::bad_model: return 3;
    case ErrorKind::unsupported: return 4;
    case ErrorKind::bad_input: return 5;
    case ErrorKind::bad_engine: return 6;
    case ErrorKind::io: return 7;
    case ErrorKind::internal: return 70;
  }
  return 70;
}

}  // namespace octavo
