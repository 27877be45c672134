"""A reader whose response is deleted while he is answered."""

from perdure.domain.errors import NotFound
from perdure.domain.principal import Principal
from perdure.engine.service import Task
from perdure.engine.signed import Found, Reading

from .harness import application, call, create
from .scripted import ScriptedService


class Overtaken(ScriptedService):
    """Whoever follows a response finds it, and then it is gone."""

    def task(self, principal: Principal, ident: str) -> Reading[Task]:
        async def find() -> Found[Task]:
            raise NotFound("It is gone.")

        return Reading(find)


def test_a_stream_whose_response_goes_ends_without_its_end() -> None:
    """The reader comes back with his cursor, and is told then: what has begun as a 200 cannot become a 404."""
    service = Overtaken()
    app = application(service)
    name = create(app).json()["id"]
    (kept,) = service.kept.values()
    answer = call(app, "GET", f"/v1/responses/{name}?stream=true&starting_after={len(kept.events) - 1}")
    assert (answer.status_code, answer.text) == (200, "")
