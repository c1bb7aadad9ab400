# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Order a graph of operations once, then replay it for many durations."""

import numpy as np


def order(const int[::1] group, const int[::1] first, const int[::1] before):
    """Communications in an order in which every one comes after all that its members wait for.

    Parameters
    ----------
    group : int32 [nodes]
        Communication of each node, numbered from 0 without gaps.
    first, before : int32 [nodes + 1], int32 [edges]
        Node ``v`` waits for ``before[first[v]:first[v + 1]]``.

    Returns
    -------
    members : int32 [nodes]
        Nodes, those of one communication side by side.
    bounds : int32 [groups + 1]
        Where each communication starts in `members`.
    done : int
        Communications that could be ordered; fewer than all of them when there is a cycle.
    """
    cdef Py_ssize_t nodes = group.shape[0], v, i, k
    cdef int g, h, head = 0, tail = 0, groups = 0
    for v in range(nodes):
        if group[v] >= groups:
            groups = group[v] + 1

    # Nodes by communication, and edges by the communication they leave: counting sorts.
    start_arr = np.zeros(groups + 1, np.int32)
    member_arr = np.empty(nodes, np.int32)
    out_arr = np.zeros(groups + 1, np.int32)
    target_arr = np.empty(before.shape[0], np.int32)
    waits_arr = np.zeros(groups, np.int32)
    queue_arr = np.empty(groups, np.int32)
    sorted_arr = np.empty(nodes, np.int32)
    bounds_arr = np.zeros(groups + 1, np.int32)
    cdef int[::1] start = start_arr, member = member_arr, out = out_arr, target = target_arr
    cdef int[::1] waits = waits_arr, queue = queue_arr, done = sorted_arr, bounds = bounds_arr
    cdef int[::1] fill = np.zeros(groups, np.int32)

    with nogil:
        for v in range(nodes):
            start[group[v] + 1] += 1
            for i in range(first[v], first[v + 1]):
                out[group[before[i]] + 1] += 1
                waits[group[v]] += 1
        for g in range(groups):
            start[g + 1] += start[g]
            out[g + 1] += out[g]
        for v in range(nodes):
            g = group[v]
            member[start[g] + fill[g]] = <int> v
            fill[g] += 1
        for g in range(groups):
            fill[g] = 0
        for v in range(nodes):
            for i in range(first[v], first[v + 1]):
                g = group[before[i]]
                target[out[g] + fill[g]] = group[v]
                fill[g] += 1
        for g in range(groups):
            if waits[g] == 0:
                queue[tail] = g
                tail += 1
        k = 0
        while head < tail:
            g = queue[head]
            for i in range(start[g], start[g + 1]):
                done[k] = member[i]
                k += 1
            head += 1
            bounds[head] = <int> k
            for i in range(out[g], out[g + 1]):
                h = target[i]
                waits[h] -= 1
                if waits[h] == 0:
                    queue[tail] = h
                    tail += 1
    return sorted_arr, bounds_arr, head


def replay(
    const int[::1] members,
    const int[::1] bounds,
    const int[::1] first,
    const int[::1] before,
    const double[:, ::1] durations,
    double[:, ::1] starts,
    double[:, ::1] ends,
):
    """Fill the start and the end of every node, for all lanes at once.

    A node starts when all it waits for have ended; all nodes of a communication run from the last
    one's start, each for its own duration.
    """
    cdef Py_ssize_t groups = bounds.shape[0] - 1, lanes = durations.shape[1]
    cdef Py_ssize_t g, m, i, lane
    cdef int v, u
    cdef double* begin
    cdef double* ready
    cdef double* end
    cdef const double* other
    cdef const double* spent
    if lanes == 0 or members.shape[0] == 0:
        return
    cdef double[::1] last = np.empty(lanes)
    with nogil:
        for g in range(groups):
            for m in range(bounds[g], bounds[g + 1]):
                v = members[m]
                begin = &starts[v, 0]
                if first[v] == first[v + 1]:
                    for lane in range(lanes):
                        begin[lane] = 0.0
                for i in range(first[v], first[v + 1]):
                    other = &ends[before[i], 0]
                    if i == first[v]:
                        for lane in range(lanes):
                            begin[lane] = other[lane]
                    else:
                        for lane in range(lanes):
                            begin[lane] = other[lane] if other[lane] > begin[lane] else begin[lane]
            ready = &starts[members[bounds[g]], 0]
            if bounds[g + 1] - bounds[g] > 1:
                for lane in range(lanes):
                    last[lane] = ready[lane]
                for m in range(bounds[g] + 1, bounds[g + 1]):
                    begin = &starts[members[m], 0]
                    for lane in range(lanes):
                        last[lane] = begin[lane] if begin[lane] > last[lane] else last[lane]
                ready = &last[0]
            for m in range(bounds[g], bounds[g + 1]):
                v = members[m]
                end = &ends[v, 0]
                spent = &durations[v, 0]
                for lane in range(lanes):
                    end[lane] = ready[lane] + spent[lane]
