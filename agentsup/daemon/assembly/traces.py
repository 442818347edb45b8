"""The spans that this daemon sends by OTLP, and the words of requests in lists of traces."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from agentsup import __version__
from agentsup.config import resolve
from agentsup.daemon.assembly.children import permanent_child
from agentsup.daemon.runtime.boot_context import BootContext
from agentsup.kit.log import get_logger
from agentsup.kit.tasks import TaskOwner
from agentsup.model.errors import AgentsupError, ConfigError
from agentsup.model.secret import Secret
from agentsup.observe.traces import OtelTarget, OtelTracer, views
from agentsup.supervision import ChildContext, ChildSpec

_log = get_logger(__name__)

LOOK_EVERY_S = 60.0


class DaemonTraces:
    """The tracer, and the child that opens and closes it."""

    def __init__(self, boot_context: BootContext) -> None:
        self._boot_context = boot_context
        self.tracer = OtelTracer(boot_context.redactor.text)
        self._problem = ""

    def spec(self) -> ChildSpec:
        """The child that loads what sends spans, and sends the last ones at its end."""

        async def life(ctx: ChildContext) -> None:
            tasks = TaskOwner("traces")
            tasks.spawn(self._open(), name="otel:open")
            ctx.ready()
            try:
                await ctx.draining.wait()
            finally:
                await tasks.close(0.2)
                await self.tracer.close()

        return permanent_child("traces", life)

    def warnings(self) -> tuple[str, ...]:
        """Warnings for the daemon's status."""
        return (self._problem,) if self._problem else ()

    def counts(self) -> Mapping[str, int]:
        """Counts of spans since the start of the daemon."""
        return {"otel_sent": self.tracer.sent, "otel_failed": self.tracer.unsent}

    def excerpt(self, text: str) -> str:
        """The first words of a message, without secrets."""
        return views.excerpt(text, self._boot_context.redactor.text)

    async def _open(self) -> None:
        settings = self._boot_context.current().settings.otel
        if not settings.endpoint or self.tracer.is_on:
            return
        boot_context = self._boot_context
        try:
            headers = await asyncio.to_thread(self._headers)
            boot_context.redactor.add_all(headers.values())
            resource = {
                "service.name": settings.service_name,
                "service.version": __version__,
                "service.instance.id": boot_context.boot.node_id,
            }
            await self.tracer.open(OtelTarget(settings.url, headers, resource, settings.content))
        except (AgentsupError, ConfigError) as error:
            self._problem = error.message
            _log.warning("spans are not sent", reason=error.message)
            return
        boot_context.after_imports()
        _log.info("spans are sent", to=settings.url)
        await self._watch(settings.url)

    async def _watch(self, url: str) -> None:
        """Log once if the receiver takes no spans, and again after it has taken some."""
        before = was_failing = 0
        while True:
            await self._boot_context.clock.sleep(LOOK_EVERY_S)
            failing = self.tracer.unsent - before
            before += failing
            if failing and not was_failing:
                _log.warning("the OTLP receiver takes no spans", url=url)
            was_failing = failing

    def _headers(self) -> dict[str, str]:
        """The headers with secrets resolved; blocks, since secrets may be files."""
        boot_context = self._boot_context
        return {
            name: resolve(
                Secret(value), base=boot_context.home.root, environ=boot_context.environ
            ).reveal()
            for name, value in boot_context.current().settings.otel.headers.items()
        }
