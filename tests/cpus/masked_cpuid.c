/*
 * Hides instruction sets from the programs that load this library (LD_PRELOAD), so that they run as they would on an
 * older processor, at full speed.
 *
 * Libraries ask the CPUID instruction what there is. Linux can make that instruction fault on processors that allow
 * it (`cpuid_fault` in /proc/cpuinfo). The fault is answered here with the real answer less what MASKED_CPUID_LEVEL
 * (sse4.2, avx2 or avx512) leaves out. MASKED_CPUID_VENDOR=amd says AMD besides, because MKL takes other kernels then.
 *
 * Only what is asked is changed: a program that executes a hidden instruction all the same is not stopped.
 */
#define _GNU_SOURCE
#include <asm/prctl.h>
#include <cpuid.h>
#include <dlfcn.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

enum level { SSE42, AVX2, AVX512 };

typedef int (*sigaction_type)(int, const struct sigaction *, struct sigaction *);

static enum level level;
static int says_amd;
static struct sigaction theirs; /* the program's own handler of real faults */
static sigaction_type real_sigaction;

static void let_cpuid(int allowed) { syscall(SYS_arch_prctl, ARCH_SET_CPUID, allowed); }

#define BIT(n) (1u << (n))

static void hide(uint32_t leaf, uint32_t subleaf, uint32_t *a, uint32_t *b, uint32_t *c, uint32_t *d) {
  if (leaf == 1 && level == SSE42) *c &= ~(BIT(12) | BIT(28) | BIT(29)); /* FMA, AVX, F16C */
  if (leaf == 7 && subleaf == 0) {
    *c &= level == AVX512 ? ~0u : ~(BIT(1) | BIT(6) | BIT(8) | BIT(9) | BIT(10) | BIT(11) | BIT(12) | BIT(14));
    if (level < AVX512) *b &= ~(BIT(16) | BIT(17) | BIT(21) | BIT(26) | BIT(27) | BIT(28) | BIT(30) | BIT(31));
    if (level < AVX2) *b &= ~(BIT(3) | BIT(5) | BIT(8)); /* BMI1, AVX2, BMI2 */
    *d &= ~(BIT(2) | BIT(3) | BIT(8) | BIT(22) | BIT(23) | BIT(24) | BIT(25));
    if (level == AVX512) *c &= ~BIT(11); /* VNNI, which the first processors with AVX-512 had not */
  }
  if (leaf == 7 && subleaf == 1) { /* AVX-VNNI, bfloat16, AMX for more types, AVX-IFMA, AVX10 and the like */
    *a &= ~(BIT(4) | BIT(5) | BIT(21) | BIT(23));
    *d &= ~(BIT(4) | BIT(5) | BIT(10) | BIT(19));
  }
  if ((leaf == 0x1d || leaf == 0x1e || leaf == 0x24)) *a = *b = *c = *d = 0; /* AMX, AVX10 */
}

static void answer(uint32_t leaf, uint32_t subleaf, uint32_t *a, uint32_t *b, uint32_t *c, uint32_t *d) {
  /* AMD describes its caches elsewhere, in the same form. */
  uint32_t asked = says_amd && leaf == 0x8000001d ? 4 : leaf;
  let_cpuid(1);
  __cpuid_count(asked, subleaf, *a, *b, *c, *d);
  let_cpuid(0);
  hide(leaf, subleaf, a, b, c, d);
  if (!says_amd) return;
  if (leaf == 0 || leaf == 0x80000000) { /* AuthenticAMD */
    *b = 0x68747541, *d = 0x69746e65, *c = 0x444d4163;
    if (leaf == 0x80000000) *a = 0x8000001e;
  }
  if (leaf == 1) *a = 0x00a20f10; /* a Zen 3 */
  if (leaf == 4) *a = *b = *c = *d = 0;
  if (leaf == 0x80000001) *c |= BIT(22); /* caches are described as above */
}

static void on_fault(int number, siginfo_t *info, void *raw) {
  ucontext_t *context = raw;
  greg_t *registers = context->uc_mcontext.gregs;
  const unsigned char *code = (const unsigned char *)registers[REG_RIP];
  /* A fault without an address is one of protection, such as CPUID's; one with an address may have no code to read. */
  if (info->si_code == SI_KERNEL && code[0] == 0x0f && code[1] == 0xa2) {
    uint32_t a, b, c, d;
    answer((uint32_t)registers[REG_RAX], (uint32_t)registers[REG_RCX], &a, &b, &c, &d);
    registers[REG_RAX] = a, registers[REG_RBX] = b, registers[REG_RCX] = c, registers[REG_RDX] = d;
    registers[REG_RIP] += 2;
    return;
  }
  if (theirs.sa_flags & SA_SIGINFO) {
    theirs.sa_sigaction(number, info, raw);
  } else if (theirs.sa_handler != SIG_DFL && theirs.sa_handler != SIG_IGN) {
    theirs.sa_handler(number);
  } else {
    struct sigaction as_ever = {.sa_handler = SIG_DFL};
    real_sigaction(SIGSEGV, &as_ever, NULL); /* the same instruction faults again, and ends the process */
  }
}

/* A handler of faults that the program brings (Python's faulthandler) comes behind ours. */
int sigaction(int number, const struct sigaction *action, struct sigaction *before) {
  if (!real_sigaction) real_sigaction = (sigaction_type)dlsym(RTLD_NEXT, "sigaction");
  if (number != SIGSEGV) return real_sigaction(number, action, before);
  if (before) *before = theirs;
  if (action) theirs = *action;
  return 0;
}

__attribute__((constructor)) static void begin(void) {
  const char *named = getenv("MASKED_CPUID_LEVEL"), *vendor = getenv("MASKED_CPUID_VENDOR");
  level = named && !strcmp(named, "sse4.2") ? SSE42 : named && !strcmp(named, "avx512") ? AVX512 : AVX2;
  says_amd = vendor && !strcmp(vendor, "amd");
  struct sigaction ours = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK};
  real_sigaction = (sigaction_type)dlsym(RTLD_NEXT, "sigaction");
  real_sigaction(SIGSEGV, &ours, &theirs);
  if (syscall(SYS_arch_prctl, ARCH_SET_CPUID, 0)) {
    fputs("masked_cpuid: this processor or kernel cannot make CPUID fault\n", stderr);
    _exit(77);
  }
}
