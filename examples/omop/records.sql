-- Records of fedcalib from the OMOP Common Data Model (5.3 and 5.4), in PostgreSQL or DuckDB.
-- One row per inpatient visit for which the classifier gave a risk, and whether the person died within 30 days.
-- The CDM has no table of predictions; this one is your own: prediction (visit_occurrence_id, model, risk).
SELECT
    visit.person_id,
    prediction.risk AS score,
    CASE WHEN death.death_date <= visit.visit_start_date + 30 THEN 1 ELSE 0 END AS label
FROM prediction
JOIN visit_occurrence AS visit ON visit.visit_occurrence_id = prediction.visit_occurrence_id
JOIN person ON person.person_id = visit.person_id
JOIN observation_period AS observed
    ON observed.person_id = visit.person_id
    AND visit.visit_start_date BETWEEN observed.observation_period_start_date AND observed.observation_period_end_date
LEFT JOIN death ON death.person_id = visit.person_id
WHERE prediction.model = 'mortality-2026'
    AND visit.visit_concept_id IN (9201, 262)  -- inpatient, or emergency room and inpatient
    AND visit.visit_start_date >= DATE '2026-01-01'
    AND EXTRACT(YEAR FROM visit.visit_start_date) - person.year_of_birth >= 18
    -- whoever was not observed for 30 days and is not known to have died has no label
    AND (
        observed.observation_period_end_date >= visit.visit_start_date + 30
        OR death.death_date <= visit.visit_start_date + 30
    )
