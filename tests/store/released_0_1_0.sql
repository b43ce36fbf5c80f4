BEGIN TRANSACTION;
CREATE TABLE calls (
	id INTEGER NOT NULL, 
	run_id TEXT, 
	step_id TEXT, 
	job_id VARCHAR(40) NOT NULL, 
	job TEXT NOT NULL, 
	workflow TEXT NOT NULL, 
	attempt INTEGER NOT NULL, 
	call INTEGER NOT NULL, 
	kind VARCHAR(16) NOT NULL, 
	model TEXT NOT NULL, 
	provider VARCHAR(64) NOT NULL, 
	wire_model_id TEXT NOT NULL, 
	served_model TEXT, 
	request_id TEXT, 
	input_tokens INTEGER, 
	output_tokens INTEGER, 
	cache_read_tokens INTEGER, 
	cache_write_tokens INTEGER, 
	cache_write_1h_tokens INTEGER, 
	reasoning_tokens INTEGER, 
	usage_estimated BOOLEAN NOT NULL, 
	cost VARCHAR, 
	currency VARCHAR(3), 
	price_as_of VARCHAR(32), 
	catalog_version VARCHAR(64) NOT NULL, 
	waited_s FLOAT NOT NULL, 
	waited TEXT NOT NULL, 
	started_at VARCHAR(32) NOT NULL, 
	latency_s FLOAT NOT NULL, 
	first_piece_s FLOAT, 
	outcome VARCHAR(64) NOT NULL, 
	error TEXT, 
	stop_reason VARCHAR(32), 
	unmetered BOOLEAN NOT NULL, 
	undeclared BOOLEAN NOT NULL, 
	request_hash VARCHAR(80) NOT NULL, 
	text TEXT, 
	PRIMARY KEY (id)
);
INSERT INTO "calls" VALUES(1,NULL,'0','00000000000000000000000000000000','LLMCall','triage',1,1,'chat','m','p','w','w-2026','req-0',3,5,1,NULL,NULL,NULL,0,'0.054399','USD','2026-11-01','abc',1.5,'{"pool:tokens":1.0}','2026-11-01T12:00:00.000000+00:00',0.25,0.1,'ok',NULL,'end_turn',0,0,'ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff',NULL);
INSERT INTO "calls" VALUES(2,'run-1','0','00000000000000000000000000000001','LLMCall','triage',1,1,'chat','m','p','w','w-2026','req-1',3,5,1,NULL,NULL,NULL,0,'0.054399','USD','2026-11-01','abc',1.5,'{"pool:tokens":1.0}','2026-11-01T12:00:01.000000+00:00',0.25,0.1,'ok',NULL,'end_turn',0,0,'ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff','a﷐0000b ﷐d800');
INSERT INTO "calls" VALUES(3,'run-1','0','00000000000000000000000000000002','LLMCall','triage',1,1,'chat','m','p','w','w-2026','req-2',3,5,1,NULL,NULL,NULL,0,'0.054399','USD','2026-11-01','abc',1.5,'{"pool:tokens":1.0}','2026-11-01T12:00:02.000000+00:00',0.25,0.1,'ok',NULL,'end_turn',0,0,'ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff',NULL);
CREATE TABLE levels (
	pool TEXT NOT NULL, 
	owner VARCHAR(40) NOT NULL, 
	saved_at VARCHAR(32) NOT NULL, 
	closed BOOLEAN NOT NULL, 
	memory TEXT NOT NULL, 
	others TEXT, 
	PRIMARY KEY (pool)
);
INSERT INTO "levels" VALUES('p','one','2026-11-01T12:00:00.000000+00:00',0,'{"closed_for_s":0.0,"held_for_s":0.0,"lacks":{"tokens":[5.0,1.0]},"slowdown":1.0,"used":{}}',NULL);
CREATE TABLE runs (
	run_id TEXT NOT NULL, 
	pipeline TEXT NOT NULL, 
	version TEXT NOT NULL, 
	status VARCHAR(16) NOT NULL, 
	started_at VARCHAR(32) NOT NULL, 
	ended_at VARCHAR(32), 
	error_code VARCHAR(64), 
	error TEXT, 
	cost_cap VARCHAR(64), 
	PRIMARY KEY (run_id)
);
INSERT INTO "runs" VALUES('run-1','triage','3','failed','2026-11-01T12:00:00.000000+00:00','2026-11-01T12:00:09.000000+00:00','llm_refusal','no','0.50');
INSERT INTO "runs" VALUES('run-2','triage','','running','2026-11-01T12:00:05.000000+00:00',NULL,NULL,NULL,NULL);
CREATE INDEX calls_by_time ON calls (started_at);
CREATE INDEX calls_by_run ON calls (run_id, step_id);
COMMIT;
