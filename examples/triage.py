"""Triage of support tickets: one decision and one structured answer a ticket, both at once.

    interlock run examples/triage.py:triage --input examples/tickets.jsonl --output triaged.jsonl \
        --catalog examples/simulated.yaml
"""

from pydantic import BaseModel, Field

from interlock import Choice, DecisionCall, Grade, LLMCall, Noul, PipelineContext, pipeline


class Ticket(BaseModel):
    text: str


class Draft(BaseModel):
    summary: str = Field(description="The ticket in one sentence")
    product: str = Field(description="The product it is about")


class Triaged(BaseModel):
    team: str
    urgent: float
    draft: Draft


@pipeline
async def triage(ctx: PipelineContext, ticket: Ticket) -> Triaged:
    decision, draft = await ctx.gather(
        DecisionCall(
            {"ticket": ticket.text},
            {
                "team": Choice.of("Which team should handle this?", "billing", "technical", "sales"),
                "urgent": Noul.of("Does this convey urgency?"),
            },
        ),
        LLMCall(
            ticket.text,
            system="Summarise the ticket.",
            model=Grade.SMALL,
            max_output_tokens=400,
            response_model=Draft,
        ),
    )
    return Triaged(team=decision.choice("team").choice, urgent=decision.noul("urgent").noul, draft=draft)
