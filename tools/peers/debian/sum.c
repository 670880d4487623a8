// Prints 49450500, the sum of 99 parallel loops.
#include <stdio.h>

int main(void)
{
	long sum = 0;
	for (int round = 0; round < 99; round++) {
#pragma omp parallel for reduction(+ : sum)
		for (int i = 0; i < 1000; i++)
			sum += i;
	}
	printf("%ld\n", sum);
}
