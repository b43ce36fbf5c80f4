"""The rules once more, as one function in the database: a message is one round trip, and holds its locks for no other.

It is `rules.exchange` without signals, statement by statement, over flat arrays: the limits of all pools one after the
other, `max_concurrent` as the last of each pool. What needs more than sums (a day that may have ended, a hold that let
one pass) it leaves alone and says so: then the same rows are locked by the client and go through the Python rules. A
test runs both on the same messages.

| argument                                      | meaning                                                          |
|-----------------------------------------------|------------------------------------------------------------------|
| `names`                                       | the pools, sorted; what follows names them by their place, from 1 |
| `settles`                                     | {} or a pool's 21: back, eased, sent, left, slots, day (1 or 4) |
| `ask_keys`, `ask_priorities`                  | of each ask                                                      |
| `part_asks`, `part_pools`                     | of each part, which ask and which pool it belongs to, in order   |
| `part_amounts`                                | of each part, its charge and its slots: 5 numbers                |
| `sums`                                        | of each pool, all that is asked there and of how many: 6 numbers |

`granted` is `ALL_GRANTED` where everything was.
"""

from __future__ import annotations

from ..accounts import EPS
from ..levels import TRANSIT_PART
from .postgres_rows import SETTLE
from .rows import DAYS
from .rules import LAPSE_S, SOON_S

#: What the function says: `DONE`, or why it did nothing.
DONE, REPEATED, LOST, LAPSED, STALE, UNKNOWN, IRREGULAR = range(7)

ALL_GRANTED, ALL = [-1], "'{-1}'"

#: Changes with the function: processes of different releases may share a ledger.
NAME = "interlock_ledger_exchange_2"

FUNCTION = f"""
create or replace function {NAME}(
    fence_ bigint, seq_ bigint, names_ text[], settles float8[], ask_keys bigint[], ask_priorities integer[],
    part_asks integer[], part_pools integer[], part_amounts float8[], sums float8[], transit_s float8,
    out status integer, out granted_ integer[], out states_ float8[], out lapsed_s float8
) language plpgsql as $$
declare
    eps constant float8 := {EPS};
    inf constant float8 := 'Infinity';
    now_ float8; o record; r record;
    pools constant integer := cardinality(names_);
    parts constant integer := cardinality(part_asks);
    p integer := 0; d integer; i integer; j integer; k integer; a integer; c integer;
    n float8; s float8; f float8; x float8; ok boolean; fine boolean; base integer;
    look float8 := inf; owed_ boolean := false;
    -- per limit
    lo integer[] := '{{}}'; hi integer[] := '{{}}';
    dim integer[] := '{{}}'; kind_ integer[] := '{{}}'; part_ integer[] := '{{}}';
    cap float8[] := '{{}}'; pub float8[] := '{{}}'; rat float8[] := '{{}}'; at_ float8[] := '{{}}';
    mar float8[] := '{{}}'; uns float8[] := '{{}}'; hel float8[] := '{{}}'; ove boolean[] := '{{}}';
    ope float8[] := '{{}}';
    room float8[]; start_ float8[]; taken float8[]; aside float8[]; need float8[];
    -- per pool
    version_ bigint[] := '{{}}'; epoch_ bigint[] := '{{}}'; slow float8[] := '{{}}'; calm_ boolean[] := '{{}}';
    closed_at float8[] := '{{}}'; slots_ integer[] := '{{}}';
    out_ integer[]; own_slots integer[]; own_granted bigint[]; own_unsent float8[];
    own_key bigint[]; own_since float8[]; own_priority integer[];
    closed boolean[]; any_ boolean[]; share integer[];
    seen_priority integer[]; seen_since float8[];
    refused integer[]; refused_part integer[]; refused_since float8[];
    -- claims of others, in order
    c_pool integer[] := '{{}}'; c_priority integer[] := '{{}}'; c_since float8[] := '{{}}'; c_fence bigint[] := '{{}}';
    c_amounts float8[] := '{{}}'; claims integer := 0;
    shorts boolean[]; since_ float8; eff float8;
begin
    granted_ := '{{}}'; states_ := '{{}}'; lapsed_s := 0;
    perform set_config('synchronous_commit', 'off', true);
    select w.seq, w.alive_until, w.granted, w.states into o from ledger_owners w
        where w.fence = fence_ for no key update;
    if not found then status := {LOST}; return; end if;

    for r in select * from ledger_pools w where w.name = any(names_) order by w.name for no key update loop
        p := p + 1;
        d := cardinality(r.kind);
        lo[p] := cardinality(kind_) + 1; hi[p] := lo[p] + d;
        dim := dim || r.dimension || -1; kind_ := kind_ || r.kind || 3; part_ := part_ || r.part || 4;
        cap := cap || r.capacity || coalesce(r.slots::float8, inf);
        pub := pub || r.published || 1; rat := rat || r.rate || 1; at_ := at_ || r.at || 0; mar := mar || r.mark || 0;
        uns := uns || r.unsent || 0; hel := hel || r.held || -inf; ove := ove || r.over || false;
        ope := ope || r.opened_at || 0;
        version_[p] := r.version; epoch_[p] := r.epoch; slow[p] := r.slowdown; calm_[p] := r.calm;
        closed_at[p] := r.closed_until; slots_[p] := r.slots;
        look := least(look, r.look_at); owed_ := owed_ or true = any(r.owed);
        now_ := greatest(now_, r.clock);
    end loop;
    s := interlock_ledger_now();
    if o.alive_until < s then status := {LAPSED}; lapsed_s := s - o.alive_until; return; end if;
    if seq_ < o.seq then status := {STALE}; return; end if;
    if seq_ = o.seq then status := {REPEATED}; granted_ := o.granted; states_ := o.states; return; end if;
    if p < pools then status := {UNKNOWN}; return; end if;
    now_ := greatest(now_, s);
    if now_ >= look or owed_ then status := {IRREGULAR}; return; end if;

    out_ := array_fill(0, array[pools]); own_slots := out_; share := array_fill(1, array[pools]);
    own_granted := array_fill(0::bigint, array[pools]); own_unsent := array_fill(0::float8, array[4 * pools]);
    own_key := array_fill(null::bigint, array[pools]); own_since := array_fill(null::float8, array[pools]);
    own_priority := array_fill(null::integer, array[pools]);
    for r in select * from ledger_totals w where w.pool = any(names_)
        order by w.claim_priority desc, w.claim_since, w.fence loop
        p := array_position(names_, r.pool);
        out_[p] := out_[p] + r.slots;
        if r.fence = fence_ then
            own_slots[p] := r.slots; own_granted[p] := r.granted;
            for i in 1..4 loop own_unsent[4 * p - 4 + i] := r.unsent[i]; end loop;
            if r.claim_lapses_at >= now_ then
                own_key[p] := r.claim_key; own_since[p] := r.claim_since; own_priority[p] := r.claim_priority;
            end if;
        elsif r.claim_lapses_at >= now_ then
            claims := claims + 1; share[p] := share[p] + 1;
            c_pool[claims] := p; c_priority[claims] := r.claim_priority; c_since[claims] := r.claim_since;
            c_fence[claims] := r.fence; c_amounts := c_amounts || r.claim_charge || r.claim_slots::float8;
        end if;
    end loop;

    -- What has become of grants.
    if cardinality(settles) > 0 then
        for p in 1..pools loop
            base := {SETTLE} * (p - 1);
            i := least(settles[base + 17]::integer, own_slots[p]);
            own_slots[p] := own_slots[p] - i; out_[p] := out_[p] - i;
            for k in 1..4 loop
                eff := least(greatest(settles[base + 8 + k], 0), own_unsent[4 * p - 4 + k]);
                own_unsent[4 * p - 4 + k] := own_unsent[4 * p - 4 + k] - eff;
                n := least(greatest(settles[base + 12 + k], 0), own_unsent[4 * p - 4 + k]);
                own_unsent[4 * p - 4 + k] := own_unsent[4 * p - 4 + k] - n;
                for d in lo[p]..hi[p] - 1 loop
                    continue when part_[d] <> k - 1 or kind_[d] = 1;
                    if eff > 0 then
                        if kind_[d] = 0 then
                            at_[d] := greatest(at_[d],
                                now_ + least(transit_s, {TRANSIT_PART} * cap[d] / pub[d]) + uns[d] / rat[d]);
                        end if;
                        uns[d] := greatest(uns[d] - eff, 0);
                    end if;
                    if n > 0 then
                        if kind_[d] = 0 then at_[d] := greatest(at_[d], now_ + uns[d] / rat[d]); end if;
                        uns[d] := greatest(uns[d] - n, 0);
                    end if;
                    for j in 0..1 loop
                        x := settles[base + 4 * j + k];
                        if dim[d] in {DAYS} then
                            continue when j = 1;
                            x := settles[base + 17 + k];
                        elsif j = 1 then
                            continue when x <= 0;
                            f := case when kind_[d] = 0 then
                                cap[d] - greatest((at_[d] - greatest(now_, hel[d])) * rat[d], uns[d])
                                else cap[d] - at_[d] end;
                            x := least(x, greatest(-f, 0));
                        end if;
                        if kind_[d] = 2 then
                            if x < 0 or not ove[d] then at_[d] := greatest(at_[d] - x, uns[d]); end if;
                        elsif x < 0 then
                            at_[d] := greatest(at_[d], greatest(now_, hel[d]) + uns[d] / rat[d]) - x / rat[d];
                        elsif x > 0 then
                            at_[d] := at_[d] - x / rat[d];
                        end if;
                    end loop;
                end loop;
            end loop;
        end loop;
    end if;

    -- What there is to take.
    room := array_fill(0::float8, array[cardinality(kind_)]); taken := room; aside := room; need := room;
    for p in 1..pools loop
        at_[hi[p]] := out_[p];
        for d in lo[p]..hi[p] loop
            room[d] := case
                when now_ < hel[d] then -inf
                when kind_[d] = 0 then cap[d] - greatest((at_[d] - now_) * rat[d], uns[d])
                when kind_[d] in (2, 3) then cap[d] - at_[d]
                when at_[d] >= 1 then at_[d]
                when now_ >= mar[d] then 1
                else 0 end;
        end loop;
    end loop;
    start_ := room;
    closed := array_fill(false, array[pools]); any_ := closed;
    refused := array_fill(0, array[pools]); refused_part := refused;
    refused_since := array_fill(0::float8, array[pools]);
    seen_priority := array_fill(null::integer, array[pools]); seen_since := array_fill(null::float8, array[pools]);

    i := 1;
    if claims = 0 and parts > 0 then
        -- Nobody else wants anything: if there is enough for all of it, it can be taken in any order.
        fine := true;
        for p in 1..pools loop
            for d in lo[p]..hi[p] loop
                need[d] := case when kind_[d] = 1 then sums[6 * p] else sums[6 * p - 5 + part_[d]] end;
                if need[d] > 0 and room[d] - need[d] + eps < 0 then fine := false; end if;
            end loop;
        end loop;
        if fine then
            taken := need; granted_ := {ALL}; i := parts + 1;
            for p in 1..pools loop
                for c in 1..4 loop
                    own_unsent[4 * p - 4 + c] := own_unsent[4 * p - 4 + c] + sums[6 * p - 6 + c];
                end loop;
                c := sums[6 * p - 1]::integer;
                own_slots[p] := own_slots[p] + c; out_[p] := out_[p] + c;
                own_granted[p] := own_granted[p] + sums[6 * p]::bigint;
            end loop;
        end if;
    end if;
    while i <= parts loop
        a := part_asks[i];
        j := i;
        ok := true;
        while j <= parts and part_asks[j] = a loop
            p := part_pools[j];
            if closed[p] then
                ok := false;
            else
                for d in lo[p]..hi[p] loop
                    need[d] := case when kind_[d] = 1 then 1 else part_amounts[5 * j - 4 + part_[d]] end;
                    if need[d] > cap[d] + (case when kind_[d] = 3 then 0 else eps end) then ok := false; end if;
                end loop;
            end if;
            j := j + 1;
        end loop;
        if ok then
            shorts := null;
            for k in i..j - 1 loop
                p := part_pools[k];
                fine := true;
                if share[p] > 1 then
                    since_ := now_;
                    if own_key[p] = ask_keys[a] and own_priority[p] = ask_priorities[a] then
                        since_ := own_since[p];
                    end if;
                    if seen_priority[p] is null or seen_priority[p] <> ask_priorities[a] or seen_since[p] <> since_ then
                        seen_priority[p] := ask_priorities[a]; seen_since[p] := since_;
                        for d in lo[p]..hi[p] loop aside[d] := 0; end loop;
                        for c in 1..claims loop
                            continue when c_pool[c] <> p;
                            exit when (-c_priority[c], c_since[c], c_fence[c]) >= (-ask_priorities[a], since_, fence_);
                            for d in lo[p]..hi[p] loop
                                n := case when kind_[d] = 1 then 1 else c_amounts[5 * c - 4 + part_[d]] end;
                                if n > 0 and room[d] - aside[d] - n + eps < 0 then aside[d] := inf;
                                else aside[d] := aside[d] + n; end if;
                            end loop;
                        end loop;
                    end if;
                    for d in lo[p]..hi[p] loop
                        n := need[d];
                        continue when n <= 0;
                        if room[d] - aside[d] - n + eps < 0
                            or (any_[p] and taken[d] + n > start_[d] / share[p] + eps) then fine := false; exit; end if;
                    end loop;
                else
                    for d in lo[p]..hi[p] loop
                        if need[d] > 0 and room[d] - need[d] + eps < 0 then fine := false; exit; end if;
                    end loop;
                end if;
                if not fine then ok := false; shorts[k] := true; end if;
            end loop;
            if ok then
                granted_ := granted_ || (a - 1);
                for k in i..j - 1 loop
                    p := part_pools[k];
                    for d in lo[p]..hi[p] loop
                        room[d] := room[d] - need[d]; taken[d] := taken[d] + need[d];
                    end loop;
                    for c in 1..4 loop
                        own_unsent[4 * p - 4 + c] := own_unsent[4 * p - 4 + c] + part_amounts[5 * k - 5 + c];
                    end loop;
                    c := part_amounts[5 * k]::integer;
                    own_slots[p] := own_slots[p] + c; out_[p] := out_[p] + c;
                    own_granted[p] := own_granted[p] + 1; any_[p] := true;
                end loop;
            else
                for k in i..j - 1 loop
                    p := part_pools[k];
                    if refused[p] = 0 then
                        refused[p] := a; refused_part[p] := k; refused_since[p] := now_;
                        if own_key[p] = ask_keys[a] and own_priority[p] = ask_priorities[a] then
                            refused_since[p] := own_since[p];
                        end if;
                    end if;
                    if shorts[k] then closed[p] := true;
                    else for d in lo[p]..hi[p] loop room[d] := room[d] - need[d]; end loop; end if;
                end loop;
            end if;
        end if;
        i := j;
    end loop;

    -- Write it down.
    for p in 1..pools loop
        for d in lo[p]..hi[p] - 1 loop
            n := taken[d];
            continue when n <= 0;
            if kind_[d] = 1 then
                if at_[d] >= 1 then at_[d] := at_[d] - n; end if;
                mar[d] := now_ + 5;
                continue;
            end if;
            uns[d] := uns[d] + n;
            if kind_[d] = 2 then at_[d] := at_[d] + n; continue; end if;
            if at_[d] <= now_ then at_[d] := now_; mar[d] := now_; end if;
            at_[d] := at_[d] + n / rat[d];
        end loop;

        -- Its claim, and when that fits.
        f := -1; k := refused_part[p]; since_ := refused_since[p]; a := refused[p];
        if a > 0 then
            fine := true;
            for d in lo[p]..hi[p] loop
                need[d] := case when kind_[d] = 1 then 1 else part_amounts[5 * k - 4 + part_[d]] end;
            end loop;
            if share[p] > 1 then
                for c in 1..claims loop
                    continue when c_pool[c] <> p;
                    exit when (-c_priority[c], c_since[c], c_fence[c]) >= (-ask_priorities[a], since_, fence_);
                    for d in lo[p]..hi[p] loop
                        need[d] := need[d] + case when kind_[d] = 1 then 1 else c_amounts[5 * c - 4 + part_[d]] end;
                    end loop;
                end loop;
            end if;
            f := now_;
            if slots_[p] is not null and part_amounts[5 * k] > 0 and need[hi[p]] > slots_[p] - out_[p] then
                f := inf;
            else
                for d in lo[p]..hi[p] - 1 loop
                    continue when need[d] <= 0;
                    f := greatest(f, hel[d], case
                        when kind_[d] = 0 then
                            greatest(at_[d], now_ + uns[d] / rat[d]) - (cap[d] - need[d]) / rat[d]
                        when kind_[d] = 2 then case when need[d] <= cap[d] - at_[d] then now_ else mar[d] end
                        else case when at_[d] < 1 then mar[d] else now_ end end);
                end loop;
            end if;
            f := greatest(f - now_, {SOON_S});
            s := now_ + {LAPSE_S} + case when f = inf then 0 else f end;
        end if;

        update ledger_pools w set clock = now_, at = at_[lo[p]:hi[p] - 1], mark = mar[lo[p]:hi[p] - 1],
            unsent = uns[lo[p]:hi[p] - 1] where w.name = names_[p];
        insert into ledger_totals as w values (
            names_[p], fence_, own_slots[p], own_unsent[4 * p - 3:4 * p], own_granted[p],
            case when a > 0 then ask_priorities[a] end, case when a > 0 then since_ end,
            case when a > 0 then ask_keys[a] end, case when a > 0 then part_amounts[5 * k - 4:5 * k - 1] end,
            case when a > 0 then part_amounts[5 * k]::integer end, case when a > 0 then s end
        ) on conflict (pool, fence) do update set
            slots = excluded.slots, unsent = excluded.unsent, granted = excluded.granted,
            claim_priority = excluded.claim_priority, claim_since = excluded.claim_since,
            claim_key = excluded.claim_key, claim_charge = excluded.claim_charge,
            claim_slots = excluded.claim_slots, claim_lapses_at = excluded.claim_lapses_at;

        x := -inf;
        for d in lo[p]..hi[p] - 1 loop x := greatest(x, hel[d]); end loop;
        states_ := states_ || array[
            version_[p], epoch_[p], greatest(x - now_, 0), greatest(closed_at[p] - now_, 0), slow[p],
            calm_[p]::integer, coalesce(slots_[p], -1), out_[p], f, share[p] - 1, hi[p] - lo[p]]::float8[];
        for d in lo[p]..hi[p] - 1 loop
            states_ := states_ || array[
                dim[d], cap[d], pub[d],
                case when kind_[d] = 0 then cap[d] - greatest((at_[d] - greatest(now_, hel[d])) * rat[d], uns[d])
                    when kind_[d] = 2 then cap[d] - at_[d] else inf end,
                case when kind_[d] = 0 then now_ - mar[d] else inf end,
                now_ - ope[d],
                case when kind_[d] = 2 then at_[d] else -1 end]::float8[];
        end loop;
    end loop;
    update ledger_owners w set seq = seq_, names = names_, granted = granted_, states = states_ where w.fence = fence_;
    status := {DONE};
end $$
"""
