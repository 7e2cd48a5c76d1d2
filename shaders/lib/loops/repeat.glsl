// Straight code by macros: EACH(n, M) is M(0) M(1) ... M(n - 1) for a literal n of at most 8.

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
