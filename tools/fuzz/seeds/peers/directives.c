/* { dg-do run { target { { x86_64-*-* i?86-*-* } && x64 } } } */
/* { dg-options "-O2 -g" } */
/* { dg-additional-options "-std=gnu99" {target c } } */
/* { dg-set-target-env-var OMP_CANCELLATION "true" } */
/* { dg-output "device \\\[\[0-9\]+(\n|\r)" } */
