#include "cuda/emulation/fiber.h"

#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>
#include <utility>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace octavo::testing {
namespace {

// A page and five lines more than a power of two: the ends of all stacks would else share the same few sets of the caches and of the TLB.
constexpr std::size_t kStack = (std::size_t{1} << 18) + 4096 + std::size_t{5} * 64;

#if defined(__x86_64__)
// Saves what a call must keep, stores the stack pointer, and goes on where `to` was left.
extern "C" void octavo_fiber_switch(void** from, void* to);
asm(R"(
.text
.type octavo_fiber_switch, @function
octavo_fiber_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size octavo_fiber_switch, .-octavo_fiber_switch
.type octavo_fiber_begin, @function
octavo_fiber_begin:
  movq %r12, %rdi
  call *%rbx
  ud2
.size octavo_fiber_begin, .-octavo_fiber_begin
)");
extern "C" void octavo_fiber_begin();
#endif

thread_local Stacks kept;  // of fibers that ended

}  // namespace

Fibers::Fibers(std::size_t count) : saved_(count), bytes_(count * kStack) {
  // Pages that were touched stay for the next ones: getting them anew takes longer than many a small kernel.
  if (kept.bytes >= bytes_) {
    mapped_ = std::exchange(kept, {});
  } else {
    void* p = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) std::abort();
    mapped_ = {static_cast<std::byte*>(p), bytes_};
  }
  base_ = mapped_.base;
#if !defined(__x86_64__)
  for (auto& s : saved_) s = new ucontext_t;
  outside_ = new ucontext_t;
#endif
}

Fibers::~Fibers() {
  if (kept.bytes < mapped_.bytes) std::swap(kept, mapped_);
  if (mapped_.base != nullptr) munmap(mapped_.base, mapped_.bytes);
#if !defined(__x86_64__)
  for (void* s : saved_) delete static_cast<ucontext_t*>(s);
  delete static_cast<ucontext_t*>(outside_);
#endif
}

#if defined(__x86_64__)
void Fibers::start(std::size_t i, void (*entry)(std::size_t)) {
  auto* top = reinterpret_cast<std::uint64_t*>(base_ + (i + 1) * kStack) - 2;
  *--top = reinterpret_cast<std::uint64_t>(&octavo_fiber_begin);  // where the first switch returns to
  *--top = 0;                                                     // rbp
  *--top = reinterpret_cast<std::uint64_t>(entry);                // rbx
  *--top = i;                                                     // r12
  top -= 3;
  saved_[i] = top;
}
void Fibers::resume(std::size_t i) {
  current_ = i;
  octavo_fiber_switch(&outside_, saved_[i]);
}
void Fibers::leave() {
  octavo_fiber_switch(&saved_[current_], outside_);
}
#else
void Fibers::start(std::size_t i, void (*entry)(std::size_t)) {
  auto* c = static_cast<ucontext_t*>(saved_[i]);
  getcontext(c);
  c->uc_stack.ss_sp = base_ + i * kStack;
  c->uc_stack.ss_size = kStack;
  makecontext(c, reinterpret_cast<void (*)()>(entry), 1, i);
}
void Fibers::resume(std::size_t i) {
  current_ = i;
  swapcontext(static_cast<ucontext_t*>(outside_), static_cast<ucontext_t*>(saved_[i]));
}
void Fibers::leave() {
  swapcontext(static_cast<ucontext_t*>(saved_[current_]), static_cast<ucontext_t*>(outside_));
}
#endif

}  // namespace octavo::testing
