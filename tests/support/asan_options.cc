// Options of GCC's address sanitizer, in every program that it is built into. The sanitizer guesses where a thread's variables of an opened library lie: at a page's
// beginning and 16 bytes it takes the 16 bytes in front for a header of old C libraries, which it is not in current ones. What stands there becomes an address, and the
// search for leaks ends with signal 11 ("LeakSanitizer has encountered a fatal error"). It happened to tests that open NVRTC, about once in 256 places of such a block.
// Without the guess only memory that such variables alone point to would be reported as a leak, and none is.

extern "C" __attribute__((visibility("default"))) const char* __asan_default_options();

const char* __asan_default_options() {
  return "intercept_tls_get_addr=0";
}
