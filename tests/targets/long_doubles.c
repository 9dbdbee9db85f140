// cflags: -O2 -Wl,--no-as-needed -lm
// Calls libm's long double functions, many in a row, because they share the eight places of the x87 stack.
#define _GNU_SOURCE
#include <math.h>
#include <stdio.h>

#define UNARY(X) \
	X(fabsl) X(rintl) X(nearbyintl) X(ceill) X(floorl) X(truncl) X(roundl) X(sqrtl) X(cbrtl) X(expl) X(exp2l) \
	X(expm1l) X(logl) X(log2l) X(log10l) X(log1pl) X(logbl) X(sinl) X(cosl) X(tanl) X(asinl) X(acosl) X(atanl) \
	X(sinhl) X(coshl) X(tanhl) X(asinhl) X(atanhl) X(erfl) X(erfcl) X(lgammal) X(tgammal) X(j0l) X(y0l) X(j1l) \
	X(y1l) X(exp10l) X(significandl)
#define BINARY(X) \
	X(fmodl) X(remainderl) X(dreml) X(powl) X(atan2l) X(hypotl) X(copysignl) X(fdiml) X(fmaxl) X(fminl) \
	X(nextafterl) X(scalbl)

struct unary {
	const char *name;
	long double (*function)(long double);
};
struct binary {
	const char *name;
	long double (*function)(long double, long double);
};

#define ROW(function) {#function, function},
static const struct unary unary[] = {UNARY(ROW)};
static const struct binary binary[] = {BINARY(ROW)};

#define COUNT(array) (sizeof(array) / sizeof *(array))

int main(void)
{
	const long double values[] = {0.25L, 0.5L, 0.75L, -0.5L, 1.5L, 5.75L};

	for (size_t v = 0; v < COUNT(values); v++) {
		long double sum = 0;
		for (size_t i = 0; i < COUNT(unary); i++) {
			long double result = 0;
			for (int again = 0; again < 20; again++)
				result = unary[i].function(values[v]);
			printf("%s %.20Lg\n", unary[i].name, result);
			sum += isfinite(result) ? result : 1;
		}
		for (size_t i = 0; i < COUNT(binary); i++) {
			long double result = 0;
			for (int again = 0; again < 20; again++)
				result = binary[i].function(values[v], 3.0L);
			printf("%s %.20Lg\n", binary[i].name, result);
			sum += isfinite(result) ? result : 1;
		}
		printf("sum %.20Lg\n", sum);
		printf("ilogb %d lrint %ld lround %ld fma %.20Lg\n", ilogbl(values[v]), lrintl(values[v] * 4),
		       lroundl(values[v] * 4), fmal(values[v], 3, 4));
		printf("float %.9g %.17g\n", fmodf(values[v], 0.3F), fmod(values[v], 0.3));
	}
	return 0;
}
