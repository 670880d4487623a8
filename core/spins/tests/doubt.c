/* Loops that may wait, of which it cannot be said, and others. Asserted in found.rs. */
int ready(int);
long count;
volatile int flag;

void may_wait(int which)
{
	while (!ready(which))
		;
}

void may_divide(int by)
{
	while (flag / by != 3)
		;
}

void stores(int which)
{
	while (!ready(which))
		count++;
}

void counts(void)
{
	for (volatile int i = 0; i < 100 && !ready(0); i++)
		;
}

int straight(int which)
{
	return ready(which) + ready(which + 1);
}
