# The data `eight_schools` of posteriordb and its reference posteriors: see
# LICENCE.md in this folder. Of each parameter the mean, the standard deviation, and the Monte Carlo standard errors of both, of 10,000 draws.
%{
  data: %{
    sigma: """
    15 10 16 11 9 11 10 18
    """,
    y: """
    28 8 -3 7 -1 1 18 12
    """
  },
  reference: %{
    eight_schools_noncentered: """
    theta[1] 6.1505 5.61586 0.0561586 0.0615551
    theta[2] 4.93958 4.64558 0.0464558 0.0415767
    theta[3] 3.90591 5.28071 0.0528071 0.0561527
    theta[4] 4.79602 4.77094 0.0477094 0.0438112
    theta[5] 3.61444 4.61472 0.0461472 0.0413452
    theta[6] 4.05115 4.79625 0.0479625 0.0451155
    theta[7] 6.31717 5.00286 0.0500286 0.0464979
    theta[8] 4.884 5.31769 0.0531769 0.0631475
    mu 4.41052 3.3093 0.033093 0.0237611
    tau 3.60206 3.19848 0.0319848 0.0447014
    """
  }
}
