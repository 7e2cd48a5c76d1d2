#!/usr/bin/env python3
"""scikit-learn's results for the data of examples/scholar.exs: one result a line, its name and its values.

    python3 -m venv /tmp/sklearn && /tmp/sklearn/bin/pip install scikit-learn
    /tmp/sklearn/bin/python bench/scikit_learn.py > /tmp/scikit_learn.txt
    mix run examples/scholar.exs /tmp/scikit_learn.txt

examples/support/scikit_learn.txt is such a file. The data come from a formula, not from numpy's generators, for both
sides to make the same numbers, rounded to f32.
"""

import numpy as np
import sklearn
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.neighbors import KNeighborsClassifier

TRAIN, TEST, ALPHA = 240, 60, 0.05
CENTRES = [[0.0, 0.0, 0.0, 0.0], [3.0, 1.0, -1.0, 2.0], [-2.0, 3.0, 2.0, -1.0]]
SCALES = [1.0, 0.8, 1.2, 0.6]
SLOPES = [2.0, -1.0, 0.5, 3.0]


def normals():
    """Sums of twelve uniform numbers of the minimal standard generator (Park and Miller, 1988), less 6."""
    state = 20260101
    while True:
        total = 0.0
        for _ in range(12):
            state = state * 48271 % 2147483647
            total += state / 2147483647
        yield total - 6.0


def data():
    noise = normals()
    x, classes, y = [], [], []
    for i in range(TRAIN + TEST):
        row = [c + s * next(noise) for c, s in zip(CENTRES[i % 3], SCALES)]
        target = 1.5 + 0.1 * next(noise)
        for value, slope in zip(row, SLOPES):
            target += slope * value
        x.append(row)
        classes.append(i % 3)
        y.append(target)
    as_f32 = lambda values: np.array(values, dtype=np.float32).astype(np.float64)
    return as_f32(x), np.array(classes), as_f32(y)


def show(name, values):
    print(name, *(format(float(v), ".9g") for v in np.ravel(values)))


def upright(rows):
    """Each row with the sign that makes its largest entry positive: the sign of a singular vector is arbitrary."""
    return [row * np.sign(row[np.argmax(np.abs(row))]) for row in rows]


print("# scikit-learn", sklearn.__version__)
x, classes, y = data()
train, test = slice(0, TRAIN), slice(TRAIN, None)

linear = LinearRegression().fit(x[train], y[train])
show("linear_regression.coefficients", linear.coef_)
show("linear_regression.intercept", linear.intercept_)
show("linear_regression.predictions", linear.predict(x[test]))

pca = PCA(n_components=3, svd_solver="full").fit(x[train])
show("pca.components", upright(pca.components_))
show("pca.singular_values", pca.singular_values_)
show("pca.explained_variance_ratio", pca.explained_variance_ratio_)
show("pca.scores", np.abs(pca.transform(x[test])))

# Sorted by their first coordinate, because clusters have no order.
kmeans = KMeans(n_clusters=3, n_init=10, random_state=0).fit(x[train])
order = np.argsort(kmeans.cluster_centers_[:, 0])
rank = np.argsort(order)
show("k_means.centres", kmeans.cluster_centers_[order])
show("k_means.inertia", kmeans.inertia_)
show("k_means.clusters", rank[kmeans.predict(x[test])])

# Scholar minimises mean cross-entropy + alpha |w|², scikit-learn C * summed cross-entropy + |w|² / 2.
logistic = LogisticRegression(C=1 / (2 * ALPHA * TRAIN), tol=1e-10, max_iter=10_000)
logistic.fit(x[train], classes[train])
show("logistic_regression.coefficients", logistic.coef_.T)
show("logistic_regression.bias", logistic.intercept_ - np.mean(logistic.intercept_))
show("logistic_regression.classes", logistic.predict(x[test]))

knn = KNeighborsClassifier(n_neighbors=5, algorithm="brute").fit(x[train], classes[train])
distances, neighbours = knn.kneighbors(x[test])
show("k_nearest.distances", distances)
show("k_nearest.neighbours", neighbours)
show("k_nearest.classes", knn.predict(x[test]))
