# Figures of rms::val.prob on a small data set, to compare fedcalib.metrics with.
#
# Run with `Rscript val_prob.R` in this folder, with R and the package rms (Debian: r-base-core, r-cran-rms).
# It reads scores.csv (score, label) and writes val_prob.csv (name, value).

suppressMessages(library(rms))
data <- read.csv("scores.csv")
found <- val.prob(data$score, data$label, pl = FALSE, logistic.cal = TRUE)  # E figures by lowess
# calibration in the large: the intercept of a logistic line with slope 1
line <- glm(label ~ offset(qlogis(score)), family = binomial, data = data, control = list(epsilon = 1e-14))
# distances from a logistic regression on a restricted cubic spline of the log-odds with four knots
smooth <- glm(label ~ rcs(qlogis(score), 4), family = binomial, data = data, control = list(epsilon = 1e-14))
distance <- abs(fitted(smooth) - data$score)
values <- c(
  found, InTheLarge = unname(coef(line)[1]), SplineICI = mean(distance), SplineE50 = median(distance),
  SplineE90 = unname(quantile(distance, 0.9))
)
write.csv(
  data.frame(name = names(values), value = format(unname(values), digits = 15, trim = TRUE)),
  "val_prob.csv", row.names = FALSE, quote = FALSE
)
writeLines(c(R.version.string, paste("rms", packageVersion("rms"))), "versions.txt")
