/*
 * The protocol of a claim, small enough to look at all of it.
 *
 * Two or three processes want one name. The store has a lease (owner, fence, time left); a process has what it
 * believes (its token, its deadline). Requests and replies travel in messages that may be lost; a process may be
 * paused at any point for any time, and die; the store may lose its data; an operator may ask the run he sees to
 * stop. Time is one counter, which goes on whenever nobody needs it to stand still.
 *
 * What must hold is in the assertions. Each MUTANT_… is a mistake that breaks one of them: see test_model.py.
 */

#ifndef PROCESSES
#define PROCESSES 2
#endif
#ifndef GRANTS
#define GRANTS 2        /* no more of them, so that the search ends */
#endif
#ifndef LOSSES
#define LOSSES 1
#endif
#define TTL 2           /* ticks that a lease lives */
#define DEADLINE 1      /* ticks after sending at which its holder gives up */
#define NOBODY 255
#ifndef HORIZON
#define HORIZON 5       /* ticks of the clock, all in all */
#endif

mtype = { ACQUIRE, RENEW, RELEASE };
mtype = { IDLE, WAITING, HOLDING, LOST };

/* The store. */
byte owner = NOBODY;    /* who has it: a process, since each has one token at a time */
byte owner_token = 0;   /* the number of the acquisition */
byte expires = 0;
byte fence = 0;         /* of the lease that there is */
byte counter = 0;       /* the last fence */
byte stop_fence = 0;    /* the run that was asked to stop; 0: none */

/* The world. */
byte now = 0;
byte micros = 1;        /* the store's clock in small: no two grants within a microsecond */
byte grants = 0;
byte last_granted = 0;  /* the largest fence that was ever granted */
byte tokens = 0;
bool wiped = false;     /* data was lost: exclusion is not promised any more, the order of fences is */
byte wipes = 1;
byte losses = LOSSES;        /* messages that may be lost */

/* The processes. */
mtype state[PROCESSES] = IDLE;
byte token[PROCESSES];
byte mine[PROCESSES];       /* fence */
byte deadline[PROCESSES];
byte sent[PROCESSES];       /* when the request on the wire was sent */
byte told[PROCESSES];       /* whether it says "lost" */
byte dead[PROCESSES];

/* What it says when asked: a comparison, or (a mistake) what a thread has noted. */
#ifdef MUTANT_HELD_IS_A_FLAG
#define HELD(p) (state[p] == HOLDING && !told[p])
#else
#define HELD(p) (state[p] == HOLDING && !told[p] && now < deadline[p])
#endif

#define FREE (owner == NOBODY || now >= expires)
#ifdef FOLLOW_DEAD
#define FOLLOWED (owner != NOBODY && dead[owner])
#else
#define FOLLOWED false
#endif

/* The store's verbs: each is one step. */

inline store_acquire(p, ok) {
    if
    :: owner == p && owner_token == token[p] && now < expires ->
        ok = true; expires = now + TTL; mine[p] = fence     /* asked before: granted again */
    :: else ->
#ifdef MUTANT_CHECK_THEN_SET
        ok = true;              /* what was looked up was free; by now it need not be */
#else
        ok = FREE || FOLLOWED;
#endif
        if
        :: ok && grants < GRANTS ->
            grants++; micros++;
            owner = p; owner_token = token[p]; expires = now + TTL;
#ifdef MUTANT_FENCE_RESETS
            fence = 1;
#else
#ifdef MUTANT_PLAIN_COUNTER
            fence = counter + 1;
#else
            /* By the store's clock where that is more: it grows also after the counter was lost. */
            fence = (counter + 1 > micros -> counter + 1 : micros);
#endif
#endif
            counter = fence;
            assert(fence > last_granted);   /* fences grow in order of grant, also over data loss */
            last_granted = fence;
            mine[p] = fence;
            other_believes(p)
        :: else -> ok = false
        fi
    fi
}

/* Nobody else says "held" at the moment of a grant, unless the data was lost. */
inline other_believes(p) {
    q = 0;
    do
    :: q < PROCESSES ->
        assert(q == p || wiped || dead[q] || !HELD(q));
        q++
    :: else -> q = 0; break
    od
}

inline store_renew(p, ok) {
#ifdef MUTANT_RENEW_WITHOUT_OWNER
    ok = owner != NOBODY && now < expires;
#else
    ok = owner == p && owner_token == token[p] && now < expires;
#endif
#ifdef MUTANT_RENEW_CREATES
    if
    :: FREE -> owner = p; owner_token = token[p]; fence = mine[p]; ok = true
    :: else
    fi;
#endif
    if
    :: ok ->
        expires = now + TTL;
        assert(owner == p);                         /* nobody renews another's lease */
        assert(wiped || (fence == mine[p] && fence == last_granted))    /* nor brings back an old run */
    :: else
    fi
}

inline store_release(p) {
    if
#ifdef MUTANT_RELEASE_WITHOUT_OWNER
    :: owner != NOBODY ->
#else
    :: owner == p && owner_token == token[p] ->
#endif
        assert(owner == p || now >= expires);       /* nobody ends another's lease */
        forget_lease()
    :: else
    fi
}

/* What means nothing any more is 0: fewer states to look at. */
inline forget(p) {
    token[p] = 0; mine[p] = 0; deadline[p] = 0; sent[p] = 0; told[p] = false; ok = false; lost = false
}

inline forget_lease() {
    owner = NOBODY; owner_token = 0; expires = 0; fence = 0; stop_fence = 0
}

inline lose_message(lost) {
    lost = false;
    if
    :: losses > 0 -> losses--; lost = true
    :: true
    fi
}

/*
 * A holder. Each step may be followed by any number of ticks: that is a pause. What it does with the store is a
 * request that is done (or lost), and a reply that arrives later (or is lost).
 */
proctype Holder(byte p) {
    bool ok = false, lost = false;
    byte q = 0;

    do
    :: !dead[p] && state[p] == IDLE && tokens < GRANTS + 1 && now < HORIZON - 1 ->
        atomic { tokens++; token[p] = tokens; told[p] = false; sent[p] = now; state[p] = WAITING };
        atomic {                                    /* the request arrives, or is lost */
            lose_message(lost);
            ok = false;
            if
            :: !lost && !dead[p] -> store_acquire(p, ok); lose_message(lost)
            :: else
            fi
        };
        atomic {                                    /* the reply arrives, or not */
            if
            :: dead[p]
            :: !dead[p] && !lost && ok ->
#ifdef MUTANT_DEADLINE_FROM_REPLY
                deadline[p] = now + DEADLINE;
#else
                deadline[p] = sent[p] + DEADLINE;
#endif
                state[p] = HOLDING
            :: !dead[p] && !lost && !ok -> state[p] = IDLE; forget(p)
            :: !dead[p] && lost -> state[p] = LOST   /* nobody can tell: its token is deleted */
            fi;
            ok = false; lost = false
        }

    :: !dead[p] && state[p] == HOLDING ->
        if
        :: atomic { HELD(p) -> sent[p] = now };      /* renew */
            atomic {
                lose_message(lost);
                ok = false;
                if
                :: !lost && !dead[p] -> store_renew(p, ok); lose_message(lost)
                :: else
                fi
            };
            atomic {
                if
                :: dead[p]
                :: !dead[p] && lost                  /* unknown: still held until the deadline */
                :: !dead[p] && !lost && ok ->
                    if
#ifdef MUTANT_REVIVED
                    :: true ->
#else
                    :: HELD(p) ->                    /* a late yes revives nothing */
#endif
                        assert(HELD(p));             /* lost is for good */
#ifdef MUTANT_DEADLINE_FROM_REPLY
                        deadline[p] = now + DEADLINE
#else
                        deadline[p] = sent[p] + DEADLINE
#endif
                    :: else
                    fi;
                    if
#ifdef MUTANT_STOP_BY_NAME
                    :: stop_fence != 0 ->
#else
                    :: stop_fence == mine[p] ->      /* the reply brings the stop flag along */
#endif
                        assert(stop_fence == mine[p])   /* no other run sees it */
                    :: else
                    fi
                :: !dead[p] && !lost && !ok -> told[p] = true
                fi;
                ok = false; lost = false; sent[p] = 0
            }
        :: atomic { !HELD(p) -> told[p] = true; state[p] = LOST }
        :: atomic { state[p] = LOST }               /* its work is done */
        fi

    :: !dead[p] && state[p] == LOST ->
        atomic {                                    /* release, whatever it believes; may be lost */
            lose_message(lost);
            if
            :: !lost && !dead[p] -> store_release(p)
            :: else
            fi;
#ifdef MUTANT_ZOMBIE
            if
            :: lost -> state[p] = HOLDING           /* failed: and so it goes on renewing */
            :: else -> state[p] = IDLE
            fi;
            assert(state[p] != HOLDING);            /* released is for good */
#else
            state[p] = IDLE;
#endif
            forget(p)
        }

    :: now >= HORIZON -> break
    :: dead[p] -> break
    od
}

/* Time, death, data loss and the operator: whenever they like. */
active proctype World() {
    do
    :: atomic { now < HORIZON -> now++ }
    :: atomic { wipes > 0 && owner != NOBODY ->
            wipes--; forget_lease(); counter = 0; wiped = true }
    :: atomic { owner != NOBODY && now < expires && stop_fence == 0 -> stop_fence = fence }
#ifdef FOLLOW_DEAD
    :: atomic { owner != NOBODY && !dead[owner] -> dead[owner] = true; state[owner] = IDLE; token[owner] = 0; deadline[owner] = 0; sent[owner] = 0; told[owner] = false }
#endif
    :: now >= HORIZON -> break
    od
}

init {
    byte p = 0;
    atomic {
        do
        :: p < PROCESSES -> run Holder(p); p++
        :: else -> break
        od
    }
}
