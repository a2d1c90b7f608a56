"""stub"""


def plot_runs(folders, path):
    pass
