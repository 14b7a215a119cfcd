/* The few words that the C tests share. */
#ifndef QF_TESTS_CAPI_CHECK_H
#define QF_TESTS_CAPI_CHECK_H

#include <stdio.h>
#include <string.h>

#include "qf.h"

static int failures = 0, checks = 0;

#define CHECK(condition)   \
  (++checks, (condition)   \
                 ? (void)0 \
                 : (++failures, (void)printf("%s:%d: not so: %s\n", __FILE__, __LINE__, #condition)))

/* The status, and a message that holds `part`. */
static void check_error(qf_status got, qf_status want, const qf_error* error, const char* part, int line) {
  ++checks;
  if (got == want && error->code == want && strstr(error->message, part)) return;
  ++failures;
  printf("line %d: status %d (%d expected), message \"%s\" (with \"%s\" expected)\n", line, (int)got,
         (int)want, error->message, part);
}
#define REFUSED(call, status, part)                          \
  do {                                                       \
    qf_error_init(&error, sizeof error);                     \
    check_error((call), (status), &error, (part), __LINE__); \
  } while (0)
#define OK(call)                                                                                  \
  do {                                                                                            \
    qf_error_init(&error, sizeof error);                                                          \
    ++checks;                                                                                     \
    if ((call) != QF_OK) ++failures, printf("line %d: %s: %s\n", __LINE__, #call, error.message); \
  } while (0)

static int verdict(const char* name) {
  printf("%s: %d checks, %d failed\n", name, checks, failures);
  return failures != 0;
}

#endif
