"""Spark's standalone cluster: a master and workers, each a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pyspark

from lakeward.spark import toolchain
from tests.support.servers import free_ports
from tests.support.waiting import until

HOME = Path(pyspark.__file__).parent


@dataclass
class SparkCluster:
    folder: Path
    port: int
    workers: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def master(self) -> str:
        return f"spark://127.0.0.1:{self.port}"

    def environment(self) -> dict[str, str]:
        """As a machine has it that knows of Spark and Java alone."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK_", "SPARK_"))}
        java = toolchain.spark_environment()["JAVA_HOME"]
        return {**kept, "SPARK_HOME": str(HOME), "JAVA_HOME": java, "SPARK_LOCAL_IP": "127.0.0.1"}

    def start(self, name: str, *words: str) -> subprocess.Popen[bytes]:
        log = (self.folder / f"{name}.log").open("wb")
        command = [str(HOME / "bin" / "spark-class"), *words]
        with log:
            # A session of its own, so that a worker dies with its executors.
            return subprocess.Popen(
                command, cwd=self.folder, env=self.environment(), stdout=log, stderr=log, start_new_session=True
            )

    def kill_worker(self, number: int) -> None:
        """As when its machine fails: with its executors, at once."""
        os.killpg(self.workers[number].pid, signal.SIGKILL)
        self.workers[number].wait()

    @contextmanager
    def stopped(self, number: int) -> Iterator[None]:
        """Stop a worker and its executors for a block, which may kill them."""
        group = self.workers[number].pid
        os.killpg(group, signal.SIGSTOP)
        try:
            yield
        finally:
            if self.workers[number].poll() is None:
                os.killpg(group, signal.SIGCONT)

    def worker_of(self, task: str) -> int | None:
        """The worker that runs a task, by the number that Spark gives to it (TID); none yet."""
        for number in range(len(self.workers)):
            logs = (self.folder / f"work{number}").glob("app-*/*/stderr")
            if any(f"(TID {task})" in log.read_text(errors="replace") for log in logs):
                return number
        return None

    def submit(self, program: Path, *arguments: str, conf: dict[str, str]) -> subprocess.Popen[str]:
        """spark-submit, in client mode, with the driver in this environment's Python."""
        options = [word for name, value in conf.items() for word in ("--conf", f"{name}={value}")]
        command = [str(HOME / "bin" / "spark-submit"), "--master", self.master, *options, str(program), *arguments]
        environment = {**self.environment(), "PYSPARK_DRIVER_PYTHON": sys.executable}
        errors = (self.folder / "driver.log").open("ab")
        with errors:
            return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=errors, text=True)


@contextmanager
def running_cluster(folder: Path, workers: int = 2) -> Iterator[SparkCluster]:
    cluster = SparkCluster(folder, free_ports(1)[0])
    deploy = "org.apache.spark.deploy"
    address = ("--host", "127.0.0.1", "--port")
    started = [cluster.start("master", f"{deploy}.master.Master", *address, str(cluster.port), "--webui-port", "0")]
    try:
        options = ("--host", "127.0.0.1", "--cores", "1", "--memory", "1g", "--webui-port", "0")
        for number in range(workers):
            words = (f"{deploy}.worker.Worker", *options, "--work-dir", str(folder / f"work{number}"), cluster.master)
            cluster.workers.append(cluster.start(f"worker{number}", *words))
        started += cluster.workers
        log = folder / "master.log"
        until(lambda: log.read_text().count("Registering worker") == workers, seconds=90)
        yield cluster
    finally:
        for process in reversed(started):
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
