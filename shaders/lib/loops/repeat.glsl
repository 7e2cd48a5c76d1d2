// Straight code by macros: EACH(n, M) is M(0) M(1) ... M(n - 1) for a literal n of at most 8, and REPEAT(n, M) is M n times. A macro does
// not expand within itself, hence both: what REPEAT repeats may hold an EACH.

#define EACH(n, M) EACH_PASTED(n, M)
#define EACH_PASTED(n, M) EACH_##n(M)
#define EACH_1(M) M(0)
#define EACH_2(M) EACH_1(M) M(1)
#define EACH_3(M) EACH_2(M) M(2)
#define EACH_4(M) EACH_3(M) M(3)
#define EACH_5(M) EACH_4(M) M(4)
#define EACH_6(M) EACH_5(M) M(5)
#define EACH_7(M) EACH_6(M) M(6)
#define EACH_8(M) EACH_7(M) M(7)

#define REPEAT(n, M) REPEAT_PASTED(n, M)
#define REPEAT_PASTED(n, M) REPEAT_##n(M)
#define REPEAT_1(M) M
#define REPEAT_2(M) M M
#define REPEAT_3(M) M M M
#define REPEAT_4(M) M M M M
#define REPEAT_5(M) M M M M M
#define REPEAT_6(M) M M M M M M
#define REPEAT_7(M) M M M M M M M
#define REPEAT_8(M) M M M M M M M M
