// Macros of the library; every QF_X macro is defined here and nowhere else.
#pragma once

#include <cassert>

#define QF_VERSION_MAJOR 0
#define QF_VERSION_MINOR 1
#define QF_VERSION_PATCH 0
#define QF_VERSION_STRING "0.1.0"

// A precondition of the caller, checked in debug builds only. Bad input is never checked with this: it is a
// Status.
#define QF_ASSERT(condition) assert(condition)

#define QF_CONCAT_INNER(a, b) a##b
#define QF_CONCAT(a, b) QF_CONCAT_INNER(a, b)

// Leaves the enclosing function with the Status of `expr` (a Status or a Result) unless it is ok.
#define QF_TRY(expr)                                                                   \
  do {                                                                                 \
    if (auto&& qf_try_ = (expr); !qf_try_.ok()) return ::qf::Status(qf_try_.status()); \
  } while (0)

// QF_TRY_ASSIGN(auto x, f()): as QF_TRY on a Result, then binds its value. Two statements: use it inside
// braces.
#define QF_TRY_ASSIGN(declaration, expr) \
  QF_TRY_ASSIGN_INNER(declaration, expr, QF_CONCAT(qf_result_, __COUNTER__))
#define QF_TRY_ASSIGN_INNER(declaration, expr, name)  \
  auto name = (expr);                                 \
  if (!name.ok()) return ::qf::Status(name.status()); \
  declaration = std::move(*name)

#if defined(__cpp_exceptions)
#define QF_EXCEPTIONS 1
#else
#define QF_EXCEPTIONS 0
#endif

#if defined(__SANITIZE_THREAD__)
#define QF_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define QF_TSAN 1
#endif
#endif
#ifndef QF_TSAN
#define QF_TSAN 0
#endif

// 1 in the build of one test: the kernels for x86 with tests/emulated/immintrin.h, on any CPU.
#ifndef QF_EMULATED
#define QF_EMULATED 0
#endif

#if defined(__x86_64__) || QF_EMULATED
#define QF_X86 1
#else
#define QF_X86 0
#endif
#if defined(__aarch64__) && !QF_EMULATED
#define QF_ARM64 1
#else
#define QF_ARM64 0
#endif

// Kernels choose their instruction set by a region of the source, never by flags of a file: with per-file
// flags, wide code leaks into inline functions that the linker then shares with baseline code. Includes come
// before the region; everything inside stands in an anonymous namespace, without containers of the standard
// library.
#define QF_PRAGMA(x) _Pragma(#x)
#if QF_EMULATED
#define QF_TARGET_BEGIN(isa)
#define QF_TARGET_END
#elif defined(__clang__)
#define QF_TARGET_BEGIN(isa) \
  QF_PRAGMA(clang attribute push(__attribute__((target(isa))), apply_to = function))
#define QF_TARGET_BEGIN_ARM(extension) QF_TARGET_BEGIN(extension)
#define QF_TARGET_END QF_PRAGMA(clang attribute pop)
#else
#define QF_TARGET_BEGIN(isa) QF_PRAGMA(GCC push_options) QF_PRAGMA(GCC target(isa))
#define QF_TARGET_BEGIN_ARM(extension) QF_TARGET_BEGIN("arch=armv8.2-a+" extension)
#define QF_TARGET_END QF_PRAGMA(GCC pop_options)
#endif
