"""The least work there is: pydantic-core reads and checks the JSON text in one go and calls the function."""

from concurrent.futures import ThreadPoolExecutor

from pydantic_core import SchemaValidator, core_schema

from peers.task import ARGUMENTS, AsyncSearch, Call, Search, gathered, new_search, numbered

NAME = "floor (pydantic-core)"
DISTRIBUTION = "pydantic-core"
IMPORT = "from pydantic_core import SchemaValidator, core_schema"
VALIDATES = True


def _validator(search: Search | AsyncSearch) -> SchemaValidator:
    parameter = core_schema.arguments_parameter
    order = core_schema.with_default_schema(core_schema.literal_schema(["asc", "desc"]), default="desc")
    arguments = core_schema.arguments_schema(
        [
            parameter("query", core_schema.str_schema()),
            parameter("limit", core_schema.int_schema()),
            parameter("min_score", core_schema.float_schema(ge=0, le=1)),
            parameter("tags", core_schema.list_schema(core_schema.str_schema())),
            parameter("order", order),
        ]
    )
    return SchemaValidator(core_schema.call_schema(arguments, search))


def define() -> object:
    """Build the validator; the floor has no specification."""
    return _validator(new_search())


def make_call(arguments: str = ARGUMENTS) -> Call:
    """Let pydantic-core do it all."""
    validate = _validator(new_search()).validate_json
    return lambda: validate(arguments)


def many(count: int) -> tuple[object, list[object]]:
    """Keep the validators by name."""
    tools = {name: _validator(new_search(name)) for name in numbered(count)}
    return tools, list(tools.values())


def make_look_up(count: int) -> Call:
    """Find the validator by its name."""
    tools, _ = many(count)
    return lambda: tools[f"search_{count - 1}"].validate_json(ARGUMENTS)


def make_parallel(search: AsyncSearch, count: int) -> Call:
    """Gather what the async function gives."""
    validate = _validator(search).validate_json
    return gathered(lambda: validate(ARGUMENTS), count)


def make_blocking(search: Search, count: int) -> Call:
    """Return each call a thread."""
    validate = _validator(search).validate_json
    threads = ThreadPoolExecutor(count)
    return lambda: list(threads.map(validate, [ARGUMENTS] * count))
