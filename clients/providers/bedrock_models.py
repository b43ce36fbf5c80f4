"""What Bedrock lists: ListFoundationModels for what is called by its own id, ListInferenceProfiles for what is called
through a profile (`eu.anthropic...`). The endpoint is `bedrock`, beside `bedrock-runtime`.

Signed by botocore and carried by httpx2, as the calls are: boto3 would block a thread that nobody can cancel. The lists
say what a region has. Whether the account was given access to a model, AWS says at the call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote, urlencode

from interlock.catalog.words import Input

from ..listing import MOST_PAGES, PAGE, ListedModel, inputs_of, items_of, text_of
from .aws import AwsChatClient

_Json = Mapping[str, Any]


async def bedrock_models(client: AwsChatClient, *, maker: str = "") -> Sequence[ListedModel]:
    """What can be called by an id of its own, then the profiles: those of one maker (`anthropic`), or of all."""
    answer = await _asked(client, "/foundation-models", {})
    models = {str(item["modelId"]): item for item in items_of(answer, "modelSummaries")}
    found = [_model(item) for item in models.values() if "ON_DEMAND" in (item.get("inferenceTypesSupported") or ())]
    query = {"maxResults": str(PAGE)}
    for _ in range(MOST_PAGES):
        page = await _asked(client, "/inference-profiles", query)
        profiles = items_of(page, "inferenceProfileSummaries")
        found += [_profile(item, models) for item in profiles if item.get("status", "ACTIVE") == "ACTIVE"]
        token = text_of(page.get("nextToken"))
        if token is None:
            return [each for each in found if not maker or f"{maker}." in each.wire_model_id]
        query = {"maxResults": str(PAGE), "nextToken": token}
    raise ValueError(f"its list of inference profiles has more than {MOST_PAGES} pages")


def _model(item: _Json) -> ListedModel:
    return ListedModel(
        wire_model_id=str(item["modelId"]),
        name=text_of(item.get("modelName")),
        also=frozenset({str(item.get("modelArn"))}),
        inputs=_inputs(item),
        chat=_converses(item),
    )


def _profile(item: _Json, models: Mapping[str, _Json]) -> ListedModel:
    """A profile leads to one model in several regions: what the model takes, it takes."""
    arns = [str(each.get("modelArn", "")) for each in item.get("models") or () if isinstance(each, dict)]
    behind = next((models[name] for arn in arns if (name := arn.rpartition("/")[2]) in models), {})
    return ListedModel(
        wire_model_id=str(item["inferenceProfileId"]),
        name=text_of(item.get("inferenceProfileName")),
        also=frozenset({str(item.get("inferenceProfileArn"))}),
        inputs=_inputs(behind),
        chat=_converses(behind) if behind else "embed" not in str(item["inferenceProfileId"]),
    )


def _inputs(item: _Json) -> frozenset[Input] | None:
    return inputs_of(item.get("inputModalities"))


def _converses(item: _Json) -> bool:
    gives = item.get("outputModalities")
    return not isinstance(gives, list) or ("TEXT" in gives and "rerank" not in str(item.get("modelId")))


async def _asked(client: AwsChatClient, path: str, query: Mapping[str, str]) -> _Json:
    base = client.base_url.rstrip("/").replace("//bedrock-runtime.", "//bedrock.")
    url = f"{base}{path}{'?' if query else ''}{urlencode(query, quote_via=quote)}"
    return await client.get_signed(url)
